"""Programs that a model's own repository brings run where they are allowed for that model, and the run says so."""

import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

import evaluator
from evaluator.bench import function
from evaluator.bench.backends import serve
from evaluator.bench.job import BenchJob
from evaluator.cli.bench import command as bench
from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import prepare
from evaluator.scoring.spec import ModelSpec, RunSpec, allowing
from evaluator.scoring.worker import Load
from evaluator.sweep.config import read_sweep
from evaluator.tasks import chosen_tasks
from evaluator.translate.base import local_source
from evaluator.translate.llm import LLMTranslator
from evaluator_serving.choose import choose_engine, why_slower
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.config import load_config
from evaluator_serving.models.model_cache import cached_folder
from evaluator_serving.models.outline import outlined
from evaluator_serving.models.resolving import resolve, weights_here
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine
from evaluator_serving.vllm_engine.engine import engine_arguments
from evaluator_serving.vllm_engine.sizing import Sizes
from tests.commands import Command
from tests.hub_server import HubServer, hub_served
from tests.json_files import edit
from tests.own_code import AUTO_MAP, forget, modules_in, ran, with_own_code
from tests.tiny_models import tiny_model

FILES = r"configuration_own\.py, modeling_own\.py"
FLOAT64: Any = {"engine": "transformers", "dtype": "float64", "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def _places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    place = tmp_path_factory.mktemp("places")
    with modules_in(place / "modules"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALUATOR_CACHE", str(place / "cache"))
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same numbers, with what transformers knows by itself."""
    return tiny_model("llama", tmp_path_factory.mktemp("llama") / "llama")


@pytest.fixture
def own(llama: Path, tmp_path: Path) -> Path:
    return with_own_code(llama, tmp_path / "own")


# --- refused ------------------------------------------------------------------------------------------------------


def test_nothing_runs_of_a_model_that_is_not_named(own: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"code from its repository \({FILES}\).*--trust-remote-code") as said:
        resolve(str(own))
    assert "\n" not in str(said.value)
    assert ran(own) == set()


@pytest.mark.parametrize("name", ["run", "probe", "plan", "sweep"])
def test_commands_say_it_in_one_line(name: str, own: Path, tmp_path: Path, command: Command) -> None:
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text(f'tasks = ["gest-demo"]\nout = "{tmp_path / "run"}"\n[[models]]\nmodel = "{own}"\n')
    words = {
        "run": ["gest-demo", "--model", str(own), "--out", str(tmp_path / "run")],
        "probe": [str(own), "The nurse said that []", "he", "she"],
        "plan": [str(sweep)],
        "sweep": [str(sweep), "--ray", "none"],
    }
    ended = command(name, *words[name])
    assert (ended.code, "(configuration_own.py, modeling_own.py)" in ended.line) == (2, True)
    assert ran(own) == set()


def test_a_class_of_its_own_is_named_where_the_type_is_known(llama: Path, tmp_path: Path) -> None:
    """transformers reads the configuration by itself, and has no such model."""
    own = with_own_code(
        llama, tmp_path / "own", model_type="llama", auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    )
    with pytest.raises(InputError, match=r"\(modeling_own\.py\), which runs only if allowed"):
        resolve(str(own))
    assert resolve(str(own), trust_remote_code=True).heads == {"causal"}


def test_what_transformers_knows_by_itself_needs_nothing(llama: Path, tmp_path: Path) -> None:
    """As ever: auto_map stands beside an architecture that transformers has."""
    known = with_own_code(llama, tmp_path / "known", model_type="llama", architectures=["LlamaForCausalLM"])
    source = resolve(str(known))
    assert source.code is None
    assert type(load_config(known, "")) is transformers.LlamaConfig
    assert source.config.model_type == "llama"
    assert ran(known) == set()


def test_programs_of_another_repository_never_run(llama: Path, tmp_path: Path) -> None:
    for named in ("other/repo--modeling_own.OwnForCausalLM", "../modeling_own.OwnForCausalLM"):
        own = with_own_code(llama, tmp_path / str(len(named)), auto_map={**AUTO_MAP, "AutoModelForCausalLM": named})
        for trusted in (False, True):
            with pytest.raises(InputError, match=r"code from another repository .* never run"):
                resolve(str(own), trust_remote_code=trusted)
        assert ran(own) == set()


def test_a_type_that_another_models_programs_told_transformers_of_is_unknown(own: Path, llama: Path, tmp_path: Path) -> None:
    """Such a program may register its type, for the whole process."""
    program = own / "configuration_own.py"
    register = 'from transformers import AutoConfig\nAutoConfig.register("own_llama", OwnConfig, exist_ok=True)\n'
    program.write_text(program.read_text() + register)
    assert resolve(str(own), trust_remote_code=True).code
    other = with_own_code(llama, tmp_path / "other", auto_map={})
    try:
        with pytest.raises(InputError, match="transformers does not support its type"):
            resolve(str(other))
    finally:
        transformers.CONFIG_MAPPING._extra_content.pop("own_llama")


def test_a_plan_from_configurations_alone_runs_nothing(own: Path) -> None:
    config = json.loads((own / "config.json").read_text())
    with pytest.raises(InputError, match="it needs code from its repository, which is not part of a configuration"):
        outlined("org/own", {"org/own": config})
    assert ran(own) == set()


def test_a_missing_program_is_named(own: Path) -> None:
    (own / "modeling_own.py").unlink()
    with pytest.raises(InputError, match=r"modeling_own\.py is missing"):
        resolve(str(own), trust_remote_code=True)


def test_names_that_no_model_has_and_odd_allowances_are_refused() -> None:
    models = [ModelSpec("gpt2", label="g"), ModelSpec("org/own")]
    one, two = allowing(models, ["org/own"], ["g"])
    assert (one.trust_remote_code, one.allow_pickle) == (True, False)
    assert (two.trust_remote_code, two.allow_pickle) == (False, True)
    with pytest.raises(InputError, match="--trust-remote-code x: no --model has this name"):
        allowing(models, [], ["x"])
    with pytest.raises(InputError, match=r"unknown option 'everything': write .pickle or .trust-remote-code"):
        local_source("org/own?everything")


def test_a_sweep_names_models_and_not_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "SWEEP.toml"
    path.write_text(
        'tasks = ["gest-demo"]\nout = "o"\n[[models]]\nmodel = "a/b"\ntrust_remote_code = true\n[[models]]\nmodel = "a/c"\n'
    )
    assert [model.trust_remote_code for model in read_sweep(path).models] == [True, False]
    path.write_text('tasks = ["gest-demo"]\nout = "o"\n[defaults]\ntrust_remote_code = true\n[[models]]\nmodel = "a/b"\n')
    with pytest.raises(InputError, match=r"defaults\.trust_remote_code: unknown key"):
        read_sweep(path)


# --- allowed ------------------------------------------------------------------------------------------------------


IDS = (1, 12, 7, 30, 9)


def by_hand(llama: Path) -> torch.Tensor:
    """log P of every token at every position, by the model that transformers knows, in float64."""
    model = transformers.LlamaForCausalLM.from_pretrained(llama, dtype=torch.float64).eval()
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([IDS])).logits[0], -1)


def log_p(source: ModelSource) -> torch.Tensor:
    """The same by the program."""
    size = source.config.vocab_size
    row = Row("causal", IDS, tuple((at, token) for at in range(len(IDS)) for token in range(size)))
    (found,) = TransformersEngine(source, EngineOptions(dtype="float64", device="cpu"), [row]).score([row])
    return torch.tensor(found).view(-1, size)


def test_a_run_is_the_plain_models_recorded_and_trusts_no_other(own: Path, llama: Path, tmp_path: Path) -> None:
    other = with_own_code(llama, tmp_path / "other")
    models = {"own": str(own), "plain": str(llama)}
    with pytest.raises(InputError, match=rf"model {other}: .*\({FILES}\)"):
        evaluator.run("gest-demo", {**models, "other": str(other)}, tmp_path / "no", trust_remote_code=["own"], **FLOAT64)
    assert ran(other) == set()
    run = evaluator.run("gest-demo", models, tmp_path / "run", limit=6, trust_remote_code=["own"], **FLOAT64)
    with pytest.warns(UserWarning, match="own: runs code of its own repository"):
        run.rates()
    assert ran(own) == {"configuration", "modeling"}
    found, plain = (run.answers(name).drop("model", strict=False).sort("request", "candidate") for name in ("own", "plain"))
    assert found.height > 0
    assert found["tokens"].equals(plain["tokens"])
    differences = found["logprobs"].explode() - plain["logprobs"].explode()
    assert differences.abs().max() < 1e-9
    entries = run.record["models"]
    assert entries["own"]["code"]["files"] == ["configuration_own.py", "modeling_own.py"]
    assert entries["own"]["details"]["code"] == entries["own"]["code"]["revision"]
    assert "code" not in entries["plain"]
    assert "code" not in entries["plain"]["details"]
    assert [note for note in run_notes(run.record) if note.startswith("own: runs code of its own repository")]
    # Another program makes other numbers, for all that is known: the run doesn't mix them.
    (own / "modeling_own.py").write_text((own / "modeling_own.py").read_text() + "\n# changed\n")
    with pytest.raises(InputError, match="code"):
        evaluator.run("gest-demo", {"own": str(own)}, tmp_path / "run", limit=6, trust_remote_code=["own"], **FLOAT64)


def test_only_its_own_fingerprint_knows_of_it(own: Path, llama: Path, tmp_path: Path) -> None:
    """A model without programs is the same whether it is named or not."""
    named, plain = (resolve(str(llama), trust_remote_code=trusted) for trusted in (True, False))
    assert named.code is None
    prints = [fingerprint(identity("transformers", source, EngineOptions())) for source in (named, plain)]
    assert prints[0] == prints[1]
    before = resolve(str(own), trust_remote_code=True)
    moved = resolve(str(shutil.copytree(own, tmp_path / "moved")), trust_remote_code=True)
    (own / "configuration_own.py").write_text((own / "configuration_own.py").read_text() + "\n# changed\n")
    after = resolve(str(own), trust_remote_code=True)
    one, two, three = (fingerprint(identity("transformers", source, EngineOptions())) for source in (before, moved, after))
    assert one == two != three
    assert before.revision == after.revision


def test_a_translator_is_allowed_behind_its_spec(own: Path, llama: Path) -> None:
    with pytest.raises(InputError, match=FILES):
        LLMTranslator(str(own))
    assert ran(own) == set()
    translator, plain = LLMTranslator(f"{own}?trust-remote-code"), LLMTranslator(str(llama))
    assert (translator.system, plain.system) == (str(own), str(llama))
    assert translator.parameters["details"] != plain.parameters["details"]


def test_one_folder_under_two_names_is_trusted_under_one(llama: Path, tmp_path: Path) -> None:
    """Where transformers has the model too: two ways to compute it, which share no engine and no answers."""
    known = with_own_code(llama, tmp_path / "known", model_type="llama", architectures=["LlamaForCausalLM"])
    models = allowing([ModelSpec(str(known), "transformers", label=name) for name in ("a", "b")], [], ["a"])
    job = RunSpec(models, chosen_tasks(("gest-demo",)), tmp_path / "run", limit=2)
    own, plain = prepare(job).models
    assert (own.source.code is not None, plain.source.code) == (True, None)
    assert own.load_key != plain.load_key
    assert fingerprint(own.info) != fingerprint(plain.info)


def test_engines_of_graphs_leave_it_to_transformers(own: Path) -> None:
    source = resolve(str(own), trust_remote_code=True)
    cpu = EngineOptions(device="cpu")
    assert choose_engine(source, ["causal"], cpu) == "transformers"
    assert "no ONNX graph" in str(why_slower(source, ["causal"], cpu))
    encoder_for(source)
    assert not cached_folder(source.revision).exists()
    sizes = Sizes(8, 8, 1, 1 << 20, None)
    assert engine_arguments(source, cpu, sizes)["trust_remote_code"] is True


def test_it_travels_without_the_class_of_its_config(own: Path, tmp_path: Path) -> None:
    """Another process doesn't know the class: the folder there makes the config, if its programs are the same."""
    source = resolve(str(own), trust_remote_code=True)
    written = pickle.dumps(source)
    assert b"transformers_modules" not in written
    travelled = pickle.loads(written)
    assert travelled.config is None
    with weights_here(travelled) as here:
        assert here.config.to_dict() == source.config.to_dict()
        assert here.code == source.code
    (own / "modeling_own.py").write_text("raise SystemExit\n")
    with pytest.raises(InputError, match="differs from that at the start of this command"), weights_here(travelled):
        pass


@pytest.fixture
def hub(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with the model, and an empty cache."""
    with hub_served({"tiny/own": own}, tmp_path / "hub", monkeypatch) as server:
        yield server


def test_from_the_hub_its_programs_come_when_it_is_named(own: Path, hub: HubServer, tmp_path: Path) -> None:
    for place in ("custom_generate", "custom_generate/deeper", "tests"):  # of these, the first alone is run
        (own / place).mkdir()
        (own / place / "generate.py").write_text("def generate(model, **options): ...\n")
    with pytest.raises(InputError, match=FILES):
        resolve("tiny/own")
    assert not [name for name in hub.fetched() if name.endswith((".py", ".safetensors"))]
    source = resolve("tiny/own", trust_remote_code=True)
    assert source.code is not None
    assert set(source.code.files) == {"configuration_own.py", "modeling_own.py", "custom_generate/generate.py"}
    programs = {f"tiny/own/{name}" for name in source.code.files}
    assert {name for name in hub.fetched() if name.endswith((".py", ".safetensors"))} == programs
    assert source.code == resolve(str(own), trust_remote_code=True).code
    shutil.rmtree(tmp_path / "hub")  # another machine, which has nothing yet
    with weights_here(pickle.loads(pickle.dumps(source))) as here:
        assert (here.path / "model.safetensors").is_file()
        assert here.config.to_dict() == source.config.to_dict()


def test_a_bench_fetches_and_runs_them_where_it_is_told_to(own: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Embedding, "forward", torch.nn.Embedding.forward)  # what is counted is undone
    job: list[BenchJob] = []

    def noted(ways: list[BenchJob], *_: object) -> None:
        job.extend(ways)
        raise KeyboardInterrupt

    monkeypatch.setattr(function, "bench", noted)
    words = ["tiny/own", "--task", "gest-demo", "--samples", "8", "--slices", "2", "--device", "cpu", "--threads", "1"]
    words += ["--engine", "transformers", "--against", "transformers-loop"]
    done = CliRunner().invoke(bench, words)
    assert re.search(FILES, str(done.exception))
    assert ran(own) == set()
    CliRunner().invoke(bench, [*words, "--trust-remote-code"])
    loop, engine = (answers_of(way) for way in job)  # the loop, to which nothing was fetched, is the first
    assert len(engine) > 0
    assert loop.keys() == engine.keys()
    assert all(loop[key] == pytest.approx(values, abs=1e-4) for key, values in engine.items())
    assert ran(own) == {"configuration", "modeling"}


def answers_of(job: BenchJob) -> dict[str, list[float]]:
    """What a way of a bench answers, in this process."""
    answers = io.StringIO()
    serve(job, iter(["0", "1"]), answers)
    _, *slices = map(json.loads, answers.getvalue().splitlines())
    return {key: values for part in slices for key, values in part["numbers"].items()}


def test_an_adapter_of_it(own: Path, llama: Path, tmp_path: Path) -> None:
    """Naming the adapter names its base model, whose programs compute both."""
    peft = pytest.importorskip("peft", reason="peft isn't installed: install the lora extra")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    wrapped = peft.get_peft_model(transformers.LlamaForCausalLM.from_pretrained(llama), config)
    wrapped.save_pretrained(tmp_path / "adapter")
    edit(tmp_path / "adapter" / "adapter_config.json", base_model_name_or_path=str(own))
    with pytest.raises(InputError, match=rf"whose base model .* can't be used .*\({FILES}\)"):
        resolve(str(tmp_path / "adapter"))
    assert ran(own) == set()
    found = log_p(resolve(str(tmp_path / "adapter"), trust_remote_code=True))
    with torch.inference_mode():
        expected = torch.log_softmax(wrapped.double().eval()(torch.tensor([IDS])).logits[0], -1)
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found, by_hand(llama), atol=1e-2)


# --- tokenizers ---------------------------------------------------------------------------------------------------

TOKENIZER = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast

Path({mark!r}).touch()


class OwnTokenizer(PreTrainedTokenizerFast):
{body}
"""
OTHER = """
    def __call__(self, text, **options):
        return super().__call__(text.lower(), **options)
"""


def with_tokenizer(llama: Path, folder: Path, body: str) -> Path:
    shutil.copytree(llama, folder)
    edit(
        folder / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]},
    )
    mark = str(folder.with_name(f"{folder.name}-ran"))
    (folder / "tokenization_own.py").write_text(TOKENIZER.format(mark=mark, body=body))
    return folder


def test_a_tokenizer_of_its_own(llama: Path, tmp_path: Path) -> None:
    folder = with_tokenizer(llama, tmp_path / "own", "    pass")
    with pytest.raises(InputError, match=r"\(tokenization_own\.py\), which runs only if allowed"):
        load_tokenizer(resolve(str(folder)))
    assert not (tmp_path / "own-ran").exists()
    text = "The nurse said that she is late."
    expected = transformers.AutoTokenizer.from_pretrained(llama)(text)["input_ids"]
    tokenizer = load_tokenizer(resolve(str(folder), trust_remote_code=True))
    assert tokenizer(text)["input_ids"] == expected
    assert (tmp_path / "own-ran").exists()
    odd = with_tokenizer(llama, tmp_path / "odd", OTHER)
    with pytest.raises(InputError, match="its remote tokenizer code gives other tokens"):
        load_tokenizer(resolve(str(odd), trust_remote_code=True))


# --- other processes ----------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_a_process_that_has_run_them_takes_no_other_model(own: Path, llama: Path) -> None:
    from evaluator.sweep.on_ray.worker import RayWorker

    for folder, free in ((llama, True), (own, False)):
        replica, source = RayWorker(), resolve(str(folder), trust_remote_code=True)
        rows = (Row("causal", IDS, ((1, 2),)),)
        replica.fetch(Load("transformers", pickle.loads(pickle.dumps(source)), EngineOptions(device="cpu"), rows, None, False))
        assert replica.close() is free


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray(own: Path, llama: Path, tmp_path: Path) -> None:
    """Workers that know nothing of its class."""
    named = f'name = "own"\nmodel = "{own}"\ntrust_remote_code = true\n'
    tables = "".join(f"[[models]]\n{table}" for table in (named, f'name = "plain"\nmodel = "{llama}"\n'))
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text(f'tasks = ["gest-demo"]\n[defaults]\nengine = "transformers"\ndtype = "float64"\n{tables}')
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "EVALUATOR_CACHE": str(tmp_path / "cache")}
    forget(own)
    command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(tmp_path / "run")]
    command += ["--ray", "local", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "own: runs code of its own repository" in done.stdout
    assert ran(own) == {"configuration", "modeling"}
    run = evaluator.open(tmp_path / "run")
    assert set(run.record["models"]) == {"own", "plain"}
    found, expected = (run.answers(name).sort("request", "candidate")["logprobs"].explode() for name in ("own", "plain"))
    assert found.len() > 0
    assert (found - expected).abs().max() < 1e-9
