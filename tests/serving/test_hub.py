"""Models on the hub: planned without their weights, which come where and when they are wanted."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants, snapshot_download

from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator_serving.checks.verify import needs_weights
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError, ModelError, NotNowError
from evaluator_serving.models.resolving import ahead, resolve, weights_here
from evaluator_serving.models.source import Adapter, ModelSource
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.cache import BUDGET, HOME, parse_size, readable
from evaluator_serving.weights.hub import HubModel, missing_bytes
from tests.e2e.conftest import sentences, write_samples
from tests.hub_server import Hold, HubServer, commit_of, hub_served, reply
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models by id: of one file, of shards, of .bin files that hold one head or may hold two, and one of 24 MB."""
    folder = tmp_path_factory.mktemp("models")
    found = {f"tiny/{name}": tiny_model("gpt2", folder / name, seed=seed) for seed, name in enumerate("abc")}
    found["tiny/bert"] = tiny_model("bert", folder / "bert")
    sharded = transformers.BertForPreTraining(transformers.AutoConfig.from_pretrained(found["tiny/bert"]))
    for name in ("shards", "pickled-bert"):
        shutil.copytree(found["tiny/bert"], folder / name)
        (folder / name / WEIGHTS).unlink()
        found[f"tiny/{name}"] = folder / name
    sharded.save_pretrained(folder / "shards", max_shard_size="100KB")
    torch.save(sharded.state_dict(), folder / "pickled-bert" / "pytorch_model.bin")
    found["tiny/pickled"] = shutil.copytree(found["tiny/a"], folder / "pickled")
    state = transformers.AutoModelForCausalLM.from_pretrained(found["tiny/a"]).state_dict()
    torch.save(state, folder / "pickled" / "pytorch_model.bin")
    (folder / "pickled" / WEIGHTS).unlink()
    found["tiny/large"] = tiny_model("gpt2", folder / "large", n_positions=100_000, n_embd=64)
    return found


@pytest.fixture
def hub(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The stand-in, and an empty cache."""
    with hub_served(models, tmp_path / "hub", monkeypatch) as server:
        for name in ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"):  # nobody asks again because the machine is busy
            monkeypatch.setattr(constants, name, 600)
            monkeypatch.setenv(name, "600")
        monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv(BUDGET, raising=False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def weights_of(hub: HubServer) -> dict[str, int]:
    """How often each weight file was sent."""
    return {name: times for name, times in hub.fetched().items() if name.endswith((".safetensors", ".bin"))}


def size_of(folder: Path) -> int:
    return (folder / WEIGHTS).stat().st_size


def hub_model(source: ModelSource) -> HubModel:
    assert isinstance(source.origin, HubModel)
    return source.origin


# --- planning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny/a", "tiny/bert", "tiny/shards", "tiny/pickled"])
def test_a_model_is_known_without_its_weights(name: str, hub: HubServer, models: dict[str, Path]) -> None:
    source, folder = resolve(name, allow_pickle=True), resolve(str(models[name]), allow_pickle=True)
    assert weights_of(hub) == {}
    assert source.revision == commit_of(name)
    assert (source.heads, source.context, source.parameters) == (folder.heads, folder.context, folder.parameters)
    stored = sum(file.stat().st_size for file in models[name].iterdir() if file.suffix in (".safetensors", ".bin"))
    assert missing_bytes(hub_model(source)) == stored
    before = len(hub.log)
    again = resolve(hub_model(source).spec, allow_pickle=True)
    assert (again.heads, again.parameters) == (source.heads, source.parameters)
    assert hub.log[before:] == [], "a known commit doesn't change"
    with weights_here(source) as here:
        assert resolve(str(here.path), allow_pickle=True).parameters == source.parameters
    assert set(weights_of(hub).values()) == {1}
    assert missing_bytes(hub_model(source)) == 0


def test_pickled_weights_are_refused_before_they_are_fetched(hub: HubServer) -> None:
    for name in ("tiny/pickled", "tiny/pickled-bert"):
        with pytest.raises(InputError, match="its weights are pickled"):
            resolve(name)
    assert weights_of(hub) == {}


def test_where_only_the_weights_tell_they_are_fetched(hub: HubServer) -> None:
    """A BERT's .bin file may hold a next-sentence head that its configuration doesn't name."""
    assert resolve("tiny/pickled-bert", allow_pickle=True).heads == {"masked", "pair"}
    assert weights_of(hub) == {"tiny/pickled-bert/pytorch_model.bin": 1}


@pytest.mark.parametrize(
    ("spec", "kind", "says"),
    [
        ("tiny/none", InputError, "no such model on the Hub"),
        ("tiny/a@step1", InputError, "no revision 'step1'"),
        ("tiny/bert", ModelError, "accept its terms"),
    ],
)
def test_what_the_hub_refuses_is_one_line(spec: str, kind: type[InputError], says: str, hub: HubServer) -> None:
    hub.gated.add("tiny/bert")
    with pytest.raises(kind, match=says) as caught:
        resolve(spec)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"model {spec}: ")


@pytest.mark.parametrize(("status", "passing"), [(503, True), (429, True), (403, False), (0, True), (-1, False)])
def test_a_hub_that_does_not_answer_is_no_wrong_input(
    status: int, passing: bool, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0: nobody listens there; -1: it isn't to be asked."""
    monkeypatch.setattr(hub, "route", lambda handler, path, asked: reply(handler, status, {}))
    if status <= 0:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", status < 0)
    with pytest.raises(ModelError, match="the Hub can't be reached") as caught:
        resolve("tiny/a")
    assert isinstance(caught.value, NotNowError) is passing


def test_offline_from_a_filled_cache(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, planned = resolve("tiny/a"), resolve("tiny/b")
    with weights_here(whole):
        pass
    before = len(hub.log)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with weights_here(resolve("tiny/a")) as here:
        assert (here.path / WEIGHTS).is_file()
    assert resolve("tiny/b").parameters == planned.parameters
    with pytest.raises(EngineError, match="tiny/b: its weights can't be fetched"), weights_here(planned):
        pass
    assert hub.log[before:] == []


# --- fetching -----------------------------------------------------------------------------------------------------


def test_a_broken_connection_goes_on_where_it_broke(hub: HubServer, models: dict[str, Path]) -> None:
    source = resolve("tiny/large")
    hub.drops[WEIGHTS] = 1
    with weights_here(source) as here:
        assert (here.path / WEIGHTS).read_bytes() == (models["tiny/large"] / WEIGHTS).read_bytes()
    sent = [request.range for request in hub.log if request.path.endswith(WEIGHTS) and request.method == "GET"]
    assert sent == ["bytes=0-100000", "", f"bytes={10 << 20}-"]


FETCH = """
import sys
from evaluator_serving.weights.hub import HubModel, fetched
with fetched(HubModel(sys.argv[1], sys.argv[2], ((sys.argv[3], int(sys.argv[4])),)), sys.argv[1]) as folder:
    print((folder / sys.argv[3]).stat().st_size)
"""


def fetching(hub: HubServer, tmp_path: Path, name: str, size: int) -> subprocess.Popen[str]:
    """Another process that fetches a model."""
    arguments = [sys.executable, "-c", FETCH, name, commit_of(name), WEIGHTS, str(size)]
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)


def torn(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "hub").glob("*/blobs/*.incomplete"))


def test_processes_that_want_a_model_at_once_fetch_it_once_and_a_killed_one_leaves_nothing(
    hub: HubServer, models: dict[str, Path], tmp_path: Path
) -> None:
    hold = hub.holds[WEIGHTS] = Hold()
    size = size_of(models["tiny/a"])
    killed = fetching(hub, tmp_path, "tiny/a", size)
    assert hold.reached.wait(120)
    killed.kill()
    killed.wait()
    assert torn(tmp_path)
    del hub.holds[WEIGHTS]
    hold.go.set()
    both = [fetching(hub, tmp_path, "tiny/a", size) for _ in range(2)]
    assert [process.communicate(timeout=200)[0].strip() for process in both] == [str(size)] * 2
    assert weights_of(hub) == {f"tiny/a/{WEIGHTS}": 2}, "the killed one's and one more"
    assert torn(tmp_path) == []


def test_a_model_whose_weights_are_refused_leaves_the_others(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = write_samples(tmp_path / "own.csv", sentences(6))
    specs = tuple(ModelSpec(f"tiny/{name}", "transformers", options=EngineOptions(device="cpu")) for name in "ab")
    resolve("tiny/a")
    resolve("tiny/b")
    hub.gated.add("tiny/a")
    outcome = execute(RunSpec(specs, (custom(samples),), tmp_path / "run"))
    assert set(outcome.errors) == {"tiny/a"}
    assert "accept its terms" in str(outcome.errors["tiny/a"])
    (task,) = outcome.run.tasks
    assert set(scores_of(outcome.run, task)["model"]) == {"tiny/b"}
    shown = capsys.readouterr().err
    assert f"tiny/b: fetching {readable(missing_bytes(hub_model(resolve('tiny/a'))))} of weights from the hub" in shown


def test_a_server_has_its_own_weights(hub: HubServer) -> None:
    source = resolve("tiny/a")
    assert not needs_weights("openai", source, EngineOptions(), verify=False)
    assert needs_weights("openai", source, EngineOptions(), verify=True), "the oracle reads them"
    assert not needs_weights("openai", replace(source, parameters=10**15), EngineOptions(), verify=True)
    assert needs_weights("transformers", source, EngineOptions(), verify=False)


# --- folders ------------------------------------------------------------------------------------------------------


def test_a_folder_must_be_there_with_the_same_content(models: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models["tiny/a"], tmp_path / "model")
    source = resolve(str(folder))
    link = tmp_path / "link"
    link.symlink_to(folder)
    with weights_here(replace(source, origin=link), "node 10.0.0.5") as here:
        assert here.path == folder.resolve()
    with pytest.raises(InputError, match=rf"node 10.0.0.5 has no {tmp_path}/away: copy it"):
        weights_here(replace(source, origin=tmp_path / "away"), "node 10.0.0.5").__enter__()
    shutil.copy(models["tiny/b"] / WEIGHTS, folder / WEIGHTS)
    with pytest.raises(InputError, match=r"on node 10.0.0.5 has other content .*sha256:.*, not sha256:.*copy it there again"):
        weights_here(source, "node 10.0.0.5").__enter__()
    with pytest.raises(InputError, match="changed since this command began"):
        weights_here(source).__enter__()


def test_an_adapters_base_must_be_the_one_it_was_planned_with(hub: HubServer) -> None:
    """Its own commit says nothing of the base's, which its configuration names without one."""
    source = resolve("tiny/a")
    adapter = Adapter("LORA", "tiny/b", "another commit", source.revision)
    with pytest.raises(InputError, match="its base model has changed since this command began"):
        weights_here(replace(source, adapter=adapter, revision="sha256:0")).__enter__()


# --- what may go --------------------------------------------------------------------------------------------------


def there(tmp_path: Path) -> set[str]:
    """Models whose weights are in the cache."""
    return {file.parents[2].name.rpartition("--")[2] for file in (tmp_path / "hub").glob(f"*/snapshots/*/{WEIGHTS}")}


def test_the_longest_unused_goes_and_never_what_is_in_use_or_lay_there_before(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_download("tiny/bert")
    a, b, c, bert = (resolve(f"tiny/{name}") for name in ("a", "b", "c", "bert"))
    size = hub_model(a).size
    monkeypatch.setenv(BUDGET, f"{2 * size + 10}B")
    for source in (a, b, bert, a):
        with weights_here(source):
            assert missing_bytes(hub_model(source)) == 0
    with weights_here(c):
        assert there(tmp_path) == {"a", "c", "bert"}
        assert (b.path / "config.json").is_file()
        with weights_here(a), pytest.raises(EngineError, match=f"need {readable(size)}.* in use take {readable(2 * size)}"):
            ahead(b.origin)
        assert there(tmp_path) == {"a", "c", "bert"}
        with pytest.raises(EngineError, match="in use"):
            ahead(b.origin, keep={hub_model(a).key})  # a is wanted soon, too
        ahead(b.origin)  # in place of a, the only one that is idle
    assert there(tmp_path) == {"b", "c", "bert"}
    monkeypatch.setenv(BUDGET, f"{size - 1}B")
    with pytest.raises(ModelError, match=rf"its weights are {readable(size)}, --weights-cache allows {readable(size - 1)}"):
        weights_here(a).__enter__()
    assert there(tmp_path) == {"b", "c", "bert"}, "nothing goes for what doesn't fit"
    assert weights_of(hub) == {f"tiny/{name}/{WEIGHTS}": times for name, times in (("a", 1), ("b", 2), ("c", 1), ("bert", 1))}


def test_a_sweeps_budget_is_its_own(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds in this process while the sweep runs, and goes to Ray's processes; the environment stays as it is."""
    size = hub_model(resolve("tiny/a")).size
    monkeypatch.setenv(BUDGET, f"{10 * size}B")
    models = (ModelSpec("tiny/a", "transformers"), ModelSpec("tiny/b", "transformers"))
    spec = RunSpec(models, (task("gest-demo"),), tmp_path / "run", limit=2, weights_cache=size)
    assert not sweep(spec, SweepOptions(ray="none")).errors
    assert there(tmp_path) == {"b"}
    refused = sweep(replace(spec, out=tmp_path / "small", weights_cache=size - 1), SweepOptions(ray="none")).errors
    assert [*refused] == ["tiny/a"], "the other one's weights are here already"
    assert f"--weights-cache allows {readable(size - 1)}" in str(refused["tiny/a"])
    assert os.environ[BUDGET] == f"{10 * size}B"
    assert HubAccess.of_here(size).settings[BUDGET] == str(size)


def test_who_finds_no_room_waits_for_those_in_use(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = resolve("tiny/a"), resolve("tiny/b")
    monkeypatch.setenv(BUDGET, str(hub_model(a).size))
    monkeypatch.setattr("evaluator_serving.weights.cache.LOOK_AGAIN", 0.05)
    come = threading.Event()

    def second() -> None:
        with weights_here(b):
            come.set()

    with weights_here(a):
        thread = threading.Thread(target=second)
        thread.start()
        assert not come.wait(0.3)
        assert there(tmp_path) == {"a"}
    assert come.wait(120)
    thread.join()
    assert there(tmp_path) == {"b"}


def test_without_a_budget_nothing_goes_and_a_full_disk_is_told_before(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = resolve("tiny/a"), resolve("tiny/b")
    with weights_here(a):
        pass
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=100))
    with pytest.raises(EngineError, match=rf"need {readable(hub_model(b).size)}, 100B are free on the disk of"):
        weights_here(b).__enter__()
    assert there(tmp_path) == {"a"}


def test_a_cache_that_can_only_be_read(hub: HubServer, tmp_path: Path) -> None:
    source = resolve("tiny/a")
    with weights_here(source):
        pass
    shutil.rmtree(tmp_path / "hub" / HOME)
    (tmp_path / "hub" / HOME).write_text("in the way")
    with weights_here(source) as here:
        assert (here.path / WEIGHTS).is_file()


@pytest.mark.parametrize(
    ("text", "size"), [("500GB", 500 * 10**9), ("1.5 TiB", 3 * 2**39), ("200m", 2 * 10**8), ("7", 7), ("64B", 64)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "GB", "-5GB", "5 XB", "nan", "1e9", "0.1B"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="write for example 500GB"):
        parse_size(text)


# --- access -------------------------------------------------------------------------------------------------------


def test_a_machines_own_settings_win_and_the_token_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_ENDPOINT", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_ETAG_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HF_ENDPOINT", "http://driver")
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "33")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    access = HubAccess.of_here()
    assert "secret" not in repr(access)
    assert "hf_secret" not in str({**access.settings, **access.folders})
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HOME", "HF_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", "http://own")
    access.use()
    seen = {name: os.environ.get(name) for name in ("HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT", "HF_HOME", "HF_TOKEN")}
    assert seen == {
        "HF_ENDPOINT": "http://own",
        "HF_HUB_ETAG_TIMEOUT": "33",
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "hf_secret",
    }
    replace(access, folders={"HF_HUB_CACHE": str(tmp_path / "elsewhere")}, token="hf_other").use()
    assert "HF_HUB_CACHE" not in os.environ, "the machine has its own HF_HOME"
    assert os.environ["HF_TOKEN"] == "hf_secret"
    monkeypatch.delenv("HF_HOME")
    replace(access, folders={"HF_HOME": str(tmp_path / "elsewhere")}).use()
    assert "HF_HOME" not in os.environ, "the driver's folder isn't on this machine"
