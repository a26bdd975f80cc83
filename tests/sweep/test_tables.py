"""On a cluster its machines encode, and replicas read token rows from Ray's object store: with the answers of one process."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from evaluator.scoring import driver, encodings
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks.stored import scores_of
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve
from evaluator_serving.requests import Continuation, Request
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two machines with a core each, beside a head without any."""
    from tests.sweep.patient_ray import PatientCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        made = PatientCluster(initialize_head=True, head_node_args={"num_cpus": 0})
        try:
            for _ in range(2):
                made.add_node(num_cpus=1)
            yield made.address
        finally:
            made.shutdown()


def scores(run: Run) -> Any:
    (task,) = run.tasks
    return scores_of(run, task).sort("model", "template", "sample")


def test_what_nodes_encode_is_scored_as_by_one_process(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that fail are halved down to the same requests; what one tokenizer refuses is refused; a longer run goes on."""
    task = custom(write_samples(tmp_path / "own.csv", sentences(60)))
    gpt2 = tiny_model("gpt2", tmp_path / "gpt2")
    first = driver.prepare(RunSpec((ModelSpec(str(gpt2)),), (task,), tmp_path / "first")).models[0].encoded.forwards
    lengths = Counter(first.length.tolist())
    rare = str(next(length for length in sorted(lengths) if lengths[length] < 4))
    short = tiny_model("llama", tmp_path / "short", max_position_embeddings=max(lengths) - 1)
    faulty = EngineOptions(device="cpu", extra={"fault": "row", "tokens": rare})
    models = (
        ModelSpec(str(gpt2), "tests.scoring.faulty:Faulty", options=faulty),
        ModelSpec(str(short), "transformers", options=EngineOptions(device="cpu")),
    )
    here = replace(RunSpec(models, (task,), tmp_path / "here"), verify=False)
    there = replace(here, out=tmp_path / "there")
    alone = driver.execute(here).run
    monkeypatch.setattr(encodings, "MANY", 1)
    plain, asked = encodings.encode, list[int]()

    def encode(encoder: Any, requests: Mapping[str, Request], **named: Any) -> encodings.Encoding:
        asked.append(os.getpid())
        return plain(encoder, requests, **named)

    monkeypatch.setattr(encodings, "encode", encode)
    options = SweepOptions(ray=cluster)
    partial = sweep(replace(there, limit=20), options)
    whole = sweep(there, options)
    assert not asked, "the driver encodes nothing"
    assert not partial.errors
    assert not whole.errors
    again = sweep(there, options)
    assert again.run.timings().height == whole.run.timings().height, "nothing is left to do"
    for column in ("model", "request", "kind"):
        assert sorted(whole.run.failures()[column]) == sorted(alone.failures()[column])
    assert set(alone.failures()["kind"]) == {"poisonous", "unaskable"}
    assert_frame_equal(scores(alone), scores(whole.run), abs_tol=1e-6)
    record, expected = whole.run.record["models"], alone.record["models"]
    for name in record:
        for fact in ("text_tokens", "asked", "fingerprint"):
            assert record[name][fact] == expected[name][fact], (name, fact)


def test_a_table_is_made_again_when_its_machine_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after its encoders were ended: replicas read tables long after that."""
    import ray

    from evaluator.sweep.on_ray.tables import NodeEncoders
    from tests.sweep.patient_ray import PatientCluster

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    requests = {f"r{i}": Continuation("The man", (f" said {'work ' * i}.",)) for i in range(9)}
    wanted = encodings.Wanted(resolve(str(tiny_model("gpt2", tmp_path / "gpt2"))), encodings.Asked(requests, {}))
    made = PatientCluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        machine = made.add_node(num_cpus=1)
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)
        encoders = NodeEncoders(1, [wanted])
        table = encoders.encode(wanted).table
        encoders.close()
        made.add_node(num_cpus=1)
        made.remove_node(machine, allow_graceful=False)
        assert table.apply(list) == list(encodings.encode(encoder_for(wanted.source), requests).table)
    finally:
        ray.shutdown()
        made.shutdown()


def test_users_are_told_that_encoding_waits_for_a_cpu(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other jobs hold all CPUs: that is said once, and encoding goes on when they end."""
    import ray

    from evaluator.sweep.on_ray import tables

    @ray.remote(num_cpus=1)
    class OtherJob:
        def ready(self) -> None:
            pass

    monkeypatch.setattr(tables, "REPORT_SECONDS", 0.5)
    wanted = encodings.Wanted(
        resolve(str(tiny_model("gpt2", tmp_path / "gpt2"))), encodings.Asked({"r": Continuation("The man", (" said.",))}, {})
    )
    ray.init(address=cluster, log_to_driver=False, configure_logging=False)
    try:
        others = [OtherJob.remote() for _ in range(2)]
        ray.get([other.ready.remote() for other in others])
        while ray.available_resources().get("CPU"):  # Ray's count is late
            time.sleep(0.1)
        encoders = tables.NodeEncoders(1, [wanted])
        with ThreadPoolExecutor() as pool:
            encoding = pool.submit(encoders.encode, wanted)
            said = ""
            while "encoding" not in (said := said + capsys.readouterr().err):
                time.sleep(0.1)
            for other in others:
                ray.kill(other)
            assert encoding.result().table.requests == ["r"]
        encoders.close()
        said += capsys.readouterr().err
    finally:
        ray.shutdown()
    assert said.count("encoding") == 1
    assert said.endswith("encoding requests on the cluster: no CPU is free at the moment\n")


def test_a_models_files_are_removed_before_it_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is canceled removes nothing."""
    from evaluator.sweep.on_ray import tables

    source = resolve(str(tiny_model("gpt2", tmp_path / "gpt2")))
    files = {file.name: file.read_bytes() for file in source.path.glob("*.json")}
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    plain, there = encodings.encode, list[Path]()

    def encode(*arguments: Any) -> encodings.Encoding:
        there.extend(place.iterdir())
        return plain(*arguments)

    monkeypatch.setattr(encodings, "encode", encode)
    requests = {"r": Continuation("The man", (" said.",))}
    table, _ = tables._encode(source, files, encodings.Asked(requests, {}))
    assert table.requests == ["r"]
    assert not there
