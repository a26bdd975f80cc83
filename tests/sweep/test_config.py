"""SWEEP.toml: what is read, and that every mistake is named with its line."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli.output import clock
from evaluator.cli.plan import command as plan
from evaluator.cli.sweep import command as sweep_command
from evaluator.reports.report import build_report
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator.tasks import chosen_tasks, task
from evaluator.vocabulary import MeasureOptions
from evaluator_serving.errors import InputError
from tests.made_up_runs import write_gest
from tests.tiny_models import tiny_model

GOOD = """\
tasks = ["gest-demo"]
out = "runs/night"
protocol = "published"
limit = 7

[defaults]
dtype = "bfloat16"

[[models]]
model = "org/a@[r1, r2]"

[[models]]
model = "org/b"
revisions = ["main"]
name = "bee"
engine = "vllm"
dtype = "float32"
tensor_parallel = 2
quantization = "fp8"
chat_template = "user"
extra = { max_num_seqs = 4 }
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "SWEEP.toml"
    path.write_text(text)
    return path


def test_everything_is_read(tmp_path: Path) -> None:
    spec = read_sweep(write(tmp_path, GOOD))
    assert [m.spec for m in spec.models] == ["org/a@r1", "org/a@r2", "org/b@main"]
    assert [m.name for m in spec.models] == ["org/a@r1", "org/a@r2", "bee@main"]
    assert [m.options.dtype for m in spec.models] == ["bfloat16", "bfloat16", "float32"]
    last = spec.models[2]
    assert (last.engine, last.chat_template, last.options.tensor_parallel) == ("vllm", "user", 2)
    assert last.options.quantization == "fp8"
    assert last.options.extra == {"max_num_seqs": 4}
    assert [t.name for t in spec.tasks] == ["gest-demo"]
    assert (spec.protocol, spec.limit, spec.out) == ("published", 7, Path("runs/night"))


def test_command_line_wins(tmp_path: Path) -> None:
    spec = read_sweep(write(tmp_path, GOOD), out=Path("x"))
    assert spec.out == Path("x")


def test_chat_template_shows_in_the_name(tmp_path: Path) -> None:
    spec = read_sweep(write(tmp_path, 'tasks=["gest-demo"]\nout="o"\n[[models]]\nmodel="a/b"\nchat_template="user"\n'))
    assert spec.models[0].name == "a/b+chat-user"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('dtype = "float32"', 'dtype = "float31"'), r"line 17: models\[1\]\.dtype: 'float31' is not one of float32, float64"),
        (
            ('engine = "vllm"', 'engin = "vllm"'),
            r"line 16: models\[1\]\.engin: unknown key: choose from allow_pickle, batch_tokens, chat_template",
        ),
        (
            ("tensor_parallel = 2", 'tensor_parallel = "2"'),
            r"line 18: models\[1\]\.tensor_parallel: expected a whole number, not '2'",
        ),
        (
            ("tensor_parallel = 2", "tensor_parallel = 0"),
            r"line 18: models\[1\]\.tensor_parallel: must be greater than or equal to 1, not 0",
        ),
        (('model = "org/b"\n', ""), r"line 12: models\[1\]\.model: missing: a \[\[models\]\] entry needs model"),
        (('dtype = "bfloat16"', "dtype = 16"), r"line 7: defaults.dtype: expected a string, not 16"),
        (("limit = 7", "limit = true"), r"line 4: limit: expected a whole number, not True"),
        (('protocol = "published"', 'protocol = "odd"'), r"line 3: protocol: 'odd' is not one of default, published"),
        (('tasks = ["gest-demo"]', 'tasks = ["gets"]'), r"line 1: tasks\[0\]: unknown task 'gets'"),
        (("limit = 7", "limit = = 7"), r"not valid TOML: .*line 4"),
        (("limit = 7", "limit = 7\nlimit = 8"), r"line 5: limit is defined twice"),
        (('name = "bee"', 'name = "org/a"\n'), None),
        (("[r1, r2]", "[r1, r1]"), r"would both be called 'org/a@r1'"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, change: tuple[str, str], message: str | None) -> None:
    assert change[0] in GOOD
    path = write(tmp_path, GOOD.replace(*change))
    if message is None:
        assert read_sweep(path).models[2].name == "org/a@main"
        return
    with pytest.raises(InputError, match=message) as caught:
        read_sweep(path)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    wrong = (
        GOOD.replace("limit = 7", "limit = 0")
        .replace('dtype = "float32"', 'dtype = "float31"')
        .replace('name = "bee"', "nam = 1")
    )
    path = write(tmp_path, wrong.replace('tasks = ["gest-demo"]', 'tasks = ["gets", "gest-demo", "gest-demo"]'))
    with pytest.raises(InputError) as caught:
        read_sweep(path)
    assert [line.split(": ")[:2] for line in str(caught.value).splitlines()] == [
        [f"{path}, line 1", "tasks[0]"],
        [f"{path}, line 1", "tasks[2]"],
        [f"{path}, line 4", "limit"],
        [f"{path}, line 15", "models[1].nam"],
        [f"{path}, line 17", "models[1].dtype"],
    ]


OWN = """\
tasks = ["gest-demo", "winobias"]
out = "o"
strict = true

[[models]]
model = "a"

[[models]]
model = "b"
tasks = ["gest-demo"]

[[models]]
model = "c"
revisions = ["x", "y"]
tasks = [
  "crows-pairs",
  "winobias",
]
"""


def asked(spec: RunSpec) -> list[list[str]]:
    """The tasks of each model; a model that names none is asked all."""
    return [list(m.tasks) or [t.name for t in spec.tasks] for m in spec.models]


def test_a_model_may_have_its_own_tasks(tmp_path: Path) -> None:
    spec = read_sweep(write(tmp_path, OWN))
    assert spec.strict
    assert [t.name for t in spec.tasks] == ["gest-demo", "winobias", "crows-pairs"]
    several = ["crows-pairs", "winobias"]
    assert asked(spec) == [["gest-demo", "winobias"], ["gest-demo"], several, several]


def test_defaults_may_have_tasks_and_nobody_else_need(tmp_path: Path) -> None:
    common = OWN.replace('tasks = ["gest-demo", "winobias"]\n', "").replace("strict = true", "[defaults]\ntasks = ['winobias']")
    spec = read_sweep(write(tmp_path, common))
    assert asked(spec)[:2] == [["winobias"], ["gest-demo"]]
    assert not spec.strict
    unused = read_sweep(write(tmp_path, 'tasks = ["winobias"]\nout = "o"\n[[models]]\nmodel = "a"\ntasks = ["gest-demo"]\n'))
    assert [t.name for t in unused.tasks] == ["gest-demo"]
    assert unused.models[0].tasks == ()


def test_a_task_of_ones_own_is_called_gest_in_a_models_tasks_too(tmp_path: Path) -> None:
    samples = tmp_path / "own.csv"
    samples.write_text("sentence,stereotype\nI cook.,1\n")
    spec = read_sweep(write(tmp_path, f'samples = "{samples}"\nout = "o"\n[[models]]\nmodel = "a"\ntasks = ["gest"]\n'))
    (made,) = spec.tasks
    assert made.name.startswith("gest-")
    assert asked(spec) == [[made.name]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('tasks = ["gest-demo"]', 'tasks = ["gets"]'), r"line 10: models\[1\]\.tasks\[0\]: unknown task 'gets'"),
        (('  "winobias",\n', '  "crows-pairs",\n'), r"line 15: models\[2\]\.tasks\[1\]: task crows-pairs is given twice"),
        (('tasks = ["gest-demo"]', "tasks = []"), r"line 10: models\[1\]\.tasks: the list is empty"),
        (('tasks = ["gest-demo"]', "tasks = [1]"), r"line 10: models\[1\]\.tasks\[0\]: expected a string, not 1"),
        (('tasks = ["gest-demo"]', 'tasks = "gest-demo"'), r"line 10: models\[1\]\.tasks: expected a list"),
        (('tasks = ["gest-demo", "winobias"]\n', ""), r"line 4: models\[0\]: tasks is missing: .* or in every \[\[models\]\]"),
        (("strict = true", "strict = 1"), r"line 3: strict: expected true or false, not 1"),
        (("strict = true", 'samples = "own.csv"'), r"line 3: samples: samples is a parameter of gest, gest-slavic"),
    ],
)
def test_mistakes_in_a_models_tasks_are_named_with_their_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert OWN.count(change[0]) == 1
    with pytest.raises(InputError, match=message):
        read_sweep(write(tmp_path, OWN.replace(*change)))


def test_missing_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*give a SWEEP\.toml file"):
        read_sweep(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"line 1: models: missing: a sweep needs one or more \[\[models\]\]"):
        read_sweep(write(tmp_path, 'tasks = ["gest-demo"]\n'))
    with pytest.raises(InputError, match="names no output"):
        read_sweep(write(tmp_path, 'tasks = ["gest-demo"]\n[[models]]\nmodel = "a"\n'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('tasks = [1]\nout = "o"\n[[models]]\nmodel = "a"\n', "line 1: tasks[0]: expected a string, not 1"),
        (
            'tasks = ["gest-demo"]\nout = "o"\n[[models]]\nmodel = "a"\nrevisions = [["b"]]\n',
            "line 5: models[0].revisions[0]: expected a word or a number, not ['b']",
        ),
        (
            'tasks = ["gest-demo"]\nout = "o"\n[[models]]\nmodel = "a"\nengine = ":"\n',
            "line 5: models[0].engine: ':' is not one of auto",
        ),
        (
            'tasks = ["gest-demo"]\nout = "o"\n[[models]]\nmodel = "a"\nname = "x/y"\n[[models]]\nmodel = "b"\nname = "x--y"\n',
            "models a and b would both be called 'x/y' and 'x--y', one folder",
        ),
    ],
)
def test_words_in_lists_and_names_of_folders(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_sweep(write(tmp_path, text))


MISFITS = [
    ("gpt2", 'engine = "onnx"\ndtype = "bfloat16"', "the onnx engine has no dtype bfloat16"),
    ("bert", 'engine = "vllm"', "the vllm engine scores causal ones only"),
    ("bert", 'engine = "openai"', "the openai engine scores causal ones only"),
    ("gpt2", 'engine = "openai"', "needs the server's URL"),
    ("gpt2", 'engine = "transformers"\nquantization = "fp8"', "has no option quantization"),
    ("gpt2", 'engine = "vllm"\ntensor_parallel = 3', "attention heads can't be shared by 3 devices"),
]


@pytest.mark.parametrize(("family", "lines", "said"), MISFITS)
def test_what_can_not_fit_is_refused_in_the_plan(tmp_path: Path, family: str, lines: str, said: str) -> None:
    model = tiny_model(family, tmp_path / family)
    path = write(tmp_path, f'tasks = ["gest-demo"]\nlimit = 2\nout = "o"\n[[models]]\nmodel = "{model}"\n{lines}\n')
    done = CliRunner().invoke(plan, [str(path), "--workers", "4"])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_the_files_data_wins_over_the_environment(tmp_path: Path) -> None:
    model = tiny_model("gpt2", tmp_path / "gpt2")
    path = write(tmp_path, f'tasks = ["gest"]\nout = "o"\ndata = "nowhere"\n[[models]]\nmodel = "{model}"\n')
    for arguments, folder in ([], "nowhere"), (["--data", str(tmp_path / "given")], "given"):
        done = CliRunner().invoke(plan, [str(path), *arguments], env={"EVALUATOR_DATA": str(tmp_path / "environment")})
        assert isinstance(done.exception, InputError)
        assert folder in str(done.exception)


def test_a_duration_has_more_than_a_days_hours() -> None:
    assert clock(27 * 3600 + 46 * 60 + 39) == "27:46:39"


def test_how_chat_models_are_asked(tmp_path: Path) -> None:
    text = 'tasks = ["gest-who"]\nway = "text"\norders = 2\nout = "o"\n[[models]]\nmodel = "http://127.0.0.1:1/v1#m"\n'
    spec = read_sweep(write(tmp_path, text))
    assert [task.name for task in spec.tasks] == ["gest-who-text-2orders"]
    assert [model.name for model in spec.models] == ["m"]
    with pytest.raises(InputError, match=r"line 3: orders: must be less than or equal to 6, not 7"):
        read_sweep(write(tmp_path, text.replace("orders = 2", "orders = 7").replace('way = "text"\n', "\n")))


TASKS = """
tasks = ["gest", "eurogest", "pairs", "gest-who", "gest-mt"]
out = "o"
seed = 3

[task.eurogest]
languages = ["cs", "de"]
template = "N"

[task.pairs]
samples = "{folder}/pairs.csv"
templates = "{folder}/pairs.toml"

[task.gest-who]
way = "text"
orders = 2

[task.gest-mt]
translations = "{folder}/translations"
languages = ["sk"]

[[models]]
model = "a"

[[models]]
model = "b"
tasks = ["pairs", "gest"]
"""


@pytest.fixture
def given_files(tmp_path: Path) -> Path:
    """The files of TASKS."""
    (tmp_path / "pairs.csv").write_text("a,b\nHe is kind.,She is kind.\n")
    (tmp_path / "pairs.toml").write_text('name = "mine"\n[pairs]\nmore = "a"\nless = "b"\n')
    for language in ("sk", "cs"):
        (tmp_path / "translations" / "sys" / language).mkdir(parents=True)
        (tmp_path / "translations" / "sys" / language / "translations.csv").write_text("from,to\n")
    return tmp_path


def test_each_task_of_a_sweep_is_given_its_own(given_files: Path) -> None:
    spec = read_sweep(write(given_files, TASKS.format(folder=given_files)))
    alone = {
        "eurogest": {"languages": ("cs", "de"), "template": "N"},
        "pairs": {"samples": given_files / "pairs.csv", "templates": given_files / "pairs.toml"},
        "gest-who": {"way": "text", "orders": 2, "seed": 3},
        "gest-mt": {"translations": given_files / "translations", "languages": ("sk",)},
    }
    expected = [task("gest"), *(chosen_tasks((name,), **inputs)[0] for name, inputs in alone.items())]
    assert [(made.name, made.definition) for made in spec.tasks] == [(made.name, made.definition) for made in expected]
    assert spec.tasks[-1] == expected[-1]
    assert asked(spec.asking)[0] == ["gest", "eurogest-cs+de-N", "mine", "gest-who-text-2orders-seed3"]
    assert asked(spec)[1] == ["mine", "gest"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('template = "N"', 'template = "Q"'), r"line 8: task\.eurogest\.template: 'Q' is not one of G, P, N"),
        (('languages = ["cs", "de"]', 'languages = ["xx"]'), r"line 7: task\.eurogest\.languages: .*'xx'"),
        (('languages = ["cs", "de"]', 'languages = "cs"'), r"line 7: task\.eurogest\.languages: expected a list, not 'cs'"),
        (("orders = 2", "orders = 7"), r"line 16: task\.gest-who\.orders: must be less than or equal to 6, not 7"),
        (
            ("orders = 2", "order = 2"),
            r"line 16: task\.gest-who\.order: gest-who has no such parameter: it has answers, max_tokens, ",
        ),
        (
            ("orders = 2", 'template = "N"'),
            r"line 16: task\.gest-who\.template: gest-who has no such parameter: it has answers, ",
        ),
        (
            ("[task.gest-who]", "[task.gest-1]"),
            r"line 14: task\.gest-1: the sweep has no task gest-1: its tasks are gest, euro",
        ),
        (('translations = "', 'translations = "no'), r"line 19: task\.gest-mt\.translations: .*no"),
        (("seed = 3", 'seed = 3\nwording = "none.toml"'), r"line 5: wording: .*none\.toml"),
        (
            ('tasks = ["pairs", "gest"]', 'tasks = ["gest-mt"]'),
            r"line 27: models\[1\]\.tasks: gest-mt scores no model: name it in",
        ),
        (
            ('tasks = ["gest", "eurogest", "pairs", "gest-who", "gest-mt"]', 'tasks = ["gest-mt"]'),
            r"line 2.: .*gest-mt scores no model",
        ),
    ],
)
def test_mistakes_in_what_tasks_are_given(given_files: Path, change: tuple[str, str], message: str) -> None:
    text = TASKS.format(folder=given_files)
    assert text.count(change[0]) == 1
    with pytest.raises(InputError, match=message):
        read_sweep(write(given_files, text.replace(*change)))


def test_a_sweep_scores_translations_beside_its_models(tmp_path: Path) -> None:
    (tmp_path / "t" / "sys" / "sk").mkdir(parents=True)
    (tmp_path / "t" / "sys" / "sk" / "translations.csv").write_text("from,to\nI was sad.,Bola som smutná.\n")
    write_gest(tmp_path / "data", [("I was sad.", 1)])
    model = tiny_model("gpt2", tmp_path / "gpt2")
    text = (
        f'tasks = ["gest-mt", "gest"]\nout = "{tmp_path}/run"\ndata = "{tmp_path}/data"\n'
        f'[task.gest-mt]\ntranslations = "{tmp_path}/t"\n[[models]]\nmodel = "{model}"\nengine = "transformers"\n'
    )
    path = write(tmp_path, text)
    planned = CliRunner().invoke(plan, [str(path), "--format", "json"])
    assert planned.exit_code == 0, planned.output
    assert [need["demand"]["name"] for need in json.loads(planned.stdout)["needs"]] == ["gpt2"]
    done = CliRunner().invoke(sweep_command, [str(path), "--ray", "none", "--no-verify"])
    assert done.exit_code == 0, done.output
    rows = build_report(Run.open(tmp_path / "run"), MeasureOptions(resamples=5)).rows
    assert rows.filter(model="sys", measure="p", group="1")["value"].to_list() == [0.0]
    assert rows.filter(model="gpt2", task="gest", measure="q", group="1")["value"].is_not_null().all()
