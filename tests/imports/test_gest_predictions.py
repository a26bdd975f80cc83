"""GEST's prediction files as runs, from small files that the tests write and from the published ones."""

import math
from pathlib import Path

import polars as pl
import pytest

from evaluator.imports.gest_predictions import files_of, import_predictions, read_predictions
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError
from tests.made_up_runs import write_gest

SENTENCES = ["I cry.", "I am kind.", "I lead.", "I am strong."]
GROUPS = ["1", "2", "13", "16"]


@pytest.fixture
def data(tmp_path: Path) -> DataSource:
    return DataSource(write_gest(tmp_path / "data", list(zip(SENTENCES, GROUPS, strict=True))))


def write(folder: Path, name: str, *scores: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join(map(str, scores)))
    return path


def values_of(run: Run, model: str, template: str) -> list[float]:
    rows = scores_of(run, "gest").filter(pl.col("model") == model, pl.col("template") == template).sort("sample")
    assert rows["sample"].to_list() == [0, 1, 2, 3]
    assert rows["group"].to_list() == GROUPS
    return rows["score"].to_list()


def test_log10_becomes_natural_logarithms_in_the_order_of_the_data(tmp_path: Path, data: DataSource) -> None:
    path = write(tmp_path / "p", "my_model_template-0.txt", 1, -0.5, "2e-1", " 0 ")
    run = import_predictions([path], "mlm", data, tmp_path / "run")
    assert values_of(run, "my_model", "1") == pytest.approx([math.log(10), -math.log(10) / 2, math.log(10) / 5, 0])
    assert run.protocol == "published"
    assert run.models == ["my_model"]


@pytest.mark.parametrize(("kind", "templates"), [("mlm", ["1", "2", "3", "4"]), ("glm", ["3", "4"])])
def test_numbers_of_files_and_of_templates(tmp_path: Path, data: DataSource, kind: str, templates: list[str]) -> None:
    folder = tmp_path / "p"
    for number in range(len(templates)):
        write(folder, f"m_template-{number}.txt", number, 0, 0, 0)
    run = import_predictions([folder], kind, data, tmp_path / "run")  # type: ignore[arg-type]
    for number, template in enumerate(templates):
        assert values_of(run, "m", template)[0] == pytest.approx(number * math.log(10))
    assert scores_of(run, "gest")["template"].n_unique() == len(templates)


def test_scores_carry_what_the_measures_need(tmp_path: Path, data: DataSource) -> None:
    run = import_predictions([write(tmp_path / "p", "m_template-1.txt", 0, 0, 0, 0)], "glm", data, tmp_path / "run")
    rows = scores_of(run, "gest").sort("sample")
    assert rows["polarity"].to_list() == ["female", "female", "male", "male"]
    assert rows["family"].to_list() == [False] * 4
    assert rows["head"].unique().to_list() == ["causal"]
    assert rows["logprob_male"].null_count() == 4


def test_a_second_import_adds_models_and_templates(tmp_path: Path, data: DataSource) -> None:
    out = tmp_path / "run"
    import_predictions([write(tmp_path / "p", "a_template-0.txt", 1, 1, 1, 1)], "mlm", data, out)
    import_predictions([write(tmp_path / "q", "a_template-1.txt", 2, 2, 2, 2)], "mlm", data, out)
    run = import_predictions([write(tmp_path / "r", "b_template-0.txt", 3, 3, 3, 3)], "mlm", data, out)
    assert values_of(run, "a", "1") == pytest.approx([math.log(10)] * 4)
    assert values_of(run, "a", "2") == pytest.approx([2 * math.log(10)] * 4)
    assert values_of(run, "b", "1") == pytest.approx([3 * math.log(10)] * 4)
    assert set(run.record["models"]["a"]["revision"]) == {"template 1", "template 2"}


def test_importing_again_changes_nothing(tmp_path: Path, data: DataSource) -> None:
    path = write(tmp_path / "p", "a_template-0.txt", 1, 2, 3, 4)
    first = scores_of(import_predictions([path], "mlm", data, tmp_path / "run"), "gest")
    again = scores_of(import_predictions([path], "mlm", data, tmp_path / "run"), "gest")
    assert again.equals(first)


def test_folders_give_their_text_files_in_order(tmp_path: Path) -> None:
    names = ["b_template-0.txt", "a_template-1.txt", "README.md"]
    for name in names:
        write(tmp_path / "p", name, 0)
    single = write(tmp_path / "q", "c_template-0.txt", 0)
    found = [path.name for path in files_of([single, tmp_path / "p"])]
    assert found == ["c_template-0.txt", "a_template-1.txt", "b_template-0.txt"]


@pytest.mark.parametrize("kind", ["mlm"])
@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("m_template-0.txt", [1, 2, 3], "has 3 lines, but the data set has 4 rows"),
        ("m_template-0.txt", [1, 2, 3, 4, 5], "has 5 lines"),
        ("m_template-0.txt", [1, 2, "three", 4], "line 3: 'three' is not a number"),
        ("m_template-0.txt", [1, "", 3, 4], "line 2: '' is not a number"),
        ("m_template-0.txt", ["nan", 2, 3, 4], "line 1: 'nan' is not a number"),
        ("m_template-0.txt", [1, 2, 3, "-inf"], "line 4"),
        ("m_template-4.txt", [1, 2, 3, 4], "template-0 to template-3"),
        ("m-0.txt", [1, 2, 3, 4], "MODEL_template-K.txt"),
        ("_template-0.txt", [1, 2, 3, 4], "MODEL_template-K.txt"),
    ],
)
def test_wrong_files(tmp_path: Path, data: DataSource, kind: str, name: str, lines: list[object], said: str) -> None:
    good, bad = write(tmp_path / "p", "good_template-0.txt", 1, 2, 3, 4), write(tmp_path / "p", name, *lines)
    with pytest.raises(InputError) as error:
        import_predictions([good, bad], kind, data, tmp_path / "run")  # type: ignore[arg-type]
    assert said in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()  # all or nothing


def test_generative_models_have_two_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="template-0 to template-1"):
        read_predictions(write(tmp_path / "p", "m_template-2.txt", 1), "glm", 1)


def test_no_such_file(tmp_path: Path, data: DataSource) -> None:
    with pytest.raises(InputError, match="no such file"):
        import_predictions([tmp_path / "m_template-0.txt"], "mlm", data, tmp_path / "run")


def test_empty_folder(tmp_path: Path, data: DataSource) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(InputError, match=r"no \.txt file"):
        import_predictions([tmp_path / "p"], "mlm", data, tmp_path / "run")


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "m_template-0.txt"
    path.write_bytes(b"\x80\xfe0\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_predictions(path, "mlm", 1)


def test_two_files_of_one_model_and_template(tmp_path: Path, data: DataSource) -> None:
    paths = [write(tmp_path / folder, "m_template-0.txt", 1, 2, 3, 4) for folder in ("p", "q")]
    with pytest.raises(InputError, match="are both for m, template 1"):
        import_predictions(paths, "mlm", data, tmp_path / "run")


def test_other_scores_under_a_known_name_are_refused(tmp_path: Path, data: DataSource) -> None:
    out = tmp_path / "run"
    import_predictions([write(tmp_path / "p", "m_template-0.txt", 1, 2, 3, 4)], "glm", data, out)
    before, record = values_of(Run.open(out), "m", "3"), Run.open(out).record
    with pytest.raises(InputError, match="has other scores for m, template 3"):
        import_predictions([write(tmp_path / "q", "m_template-0.txt", 4, 3, 2, 1)], "glm", data, out)
    with pytest.raises(InputError, match="a model of another kind than mlm"):
        import_predictions([write(tmp_path / "q", "m_template-0.txt", 4, 3, 2, 1)], "mlm", data, out)
    assert values_of(Run.open(out), "m", "3") == before
    assert Run.open(out).record == record
    assert scores_of(Run.open(out), "gest").height == 4


def test_a_part_that_is_gone_or_damaged_is_named(tmp_path: Path, data: DataSource) -> None:
    run = import_predictions([write(tmp_path / "p", "m_template-0.txt", 1, 2, 3, 4)], "mlm", data, tmp_path / "run")
    (part,) = run.path.glob("imported/gest/*.parquet")
    part.write_bytes(b"")
    with pytest.raises(InputError, match=r"part-m-.*\.parquet can't be read .*: import m again"):
        scores_of(run, "gest")
    part.unlink()
    with pytest.raises(InputError, match=r"part-m-.*\.parquet can't be read \(no such file\): import m again"):
        scores_of(run, "gest")


def test_the_published_files(tmp_path: Path, data_dir: Path) -> None:
    folder = data_dir / "gest" / "predictions"
    run = import_predictions([folder / "english_mlm"], "mlm", DataSource(data_dir), tmp_path / "run")
    run = import_predictions([folder / "english_glm"], "glm", DataSource(data_dir), tmp_path / "run")
    scores = scores_of(run, "gest")
    assert scores.height == 3565 * (2 * 4 + 3 * 2)
    first = (folder / "english_glm" / "gpt2_template-1.txt").read_text().split()[0]
    ours = scores.filter(pl.col("model") == "gpt2", pl.col("template") == "4", pl.col("sample") == 0)["score"][0]
    assert ours == pytest.approx(float(first) * math.log(10), rel=1e-12)
