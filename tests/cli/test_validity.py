"""`evaluator validity` on a run of made-up scores whose correlations are known beforehand."""

import json
import math
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from evaluator.cli.validity import command
from evaluator.store.run import Run
from evaluator_serving.errors import InputError
from tests.made_up_runs import add_scores, score_frame

# ln g_s of GEST and of WinoBias's first split by model
MODELS = {"a": (0.1, 0.2), "b": (0.2, 0.1), "c": (0.3, 0.4), "d": (0.5, 0.5), "e": (0.4, 0.8)}


def scores(template: str, rows: list[tuple[str, float]]) -> pl.DataFrame:
    """Two samples a group, so that a bootstrap has something to do, with the given mean."""
    return score_frame(template, [(group, value + d) for group, value in rows for d in (-0.01, 0.01)])


def make_run(path: Path, tasks: tuple[str, ...] = ("gest", "winobias"), groups: range = range(1, 17)) -> Path:
    run = Run.create_or_open(path, protocol="default", provenance={})
    for model, (gest, winobias) in MODELS.items():
        made = {
            "gest": scores("3", [(str(i), gest if i > 7 else 0.0) for i in groups]),
            "winobias": scores("type1-test", [("male", winobias), ("female", 0.0)]),
        }
        for name in tasks:
            add_scores(run, name, model, made[name])
    return path


def test_correlations_and_plot(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    run = make_run(tmp_path / "run")
    result = CliRunner().invoke(command, [str(run), "--format", "json", "--scale", "ratio", "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    (pearson,) = [r for r in rows if r["measure"] == "pearson" and r["group"] == "g_s"]
    x, y = ([math.exp(v[i]) for v in MODELS.values()] for i in (0, 1))
    mx, my = sum(x) / 5, sum(y) / 5
    cov = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    expected = cov / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
    assert pearson["value"] == pytest.approx(expected)
    assert (pearson["n"], pearson["template"], pearson["scale"]) == (5, "type1-test", "ratio")
    (spearman,) = [r for r in rows if r["measure"] == "spearman" and r["group"] == "g_s"]
    assert spearman["value"] == pytest.approx(1 - 6 * 4 / (5 * 24))  # ranks 1 2 3 5 4 against 2 1 3 4 5
    # q_1 is the same for every model: a correlation with it is undefined, with q_8 it is that of g_s.
    by_group = {r["group"]: r["value"] for r in rows if r["measure"] == "pearson"}
    assert by_group["1"] is None
    assert by_group["8"] == pytest.approx(expected)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert (run / "tables" / "validity.parquet").is_file()
    table = CliRunner().invoke(command, [str(run)])
    assert table.exit_code == 0
    assert (run / "tables" / "validity.svg").read_text().startswith("<svg")
    folder = tmp_path / "figures"
    assert CliRunner().invoke(command, [str(run), "--figures", str(folder)]).exit_code == 0
    (data,) = folder.glob("*.csv")
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".svg", ".png"}
    drawn = pl.read_csv(data)
    assert drawn["model"].to_list() == list(MODELS)
    assert drawn["x"].to_list() == pytest.approx(x)
    assert drawn["y"].to_list() == pytest.approx(y)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    only = make_run(tmp_path / "one", tasks=("winobias",))
    with pytest.raises(InputError, match=r"0 tasks that give g_s and q .*add one of gest, "):
        CliRunner().invoke(command, [str(only)], catch_exceptions=False)
    gest = make_run(tmp_path / "two", tasks=("gest",))
    with pytest.raises(InputError, match=r"0 tasks that give g_hat_s .*add one of winobias with"):
        CliRunner().invoke(command, [str(gest)], catch_exceptions=False)
    both = make_run(tmp_path / "three")
    with pytest.raises(InputError, match="nonsense: pictures are"):
        CliRunner().invoke(command, [str(both), "--plot", str(tmp_path / "x.nonsense")], catch_exceptions=False)
    women = make_run(tmp_path / "four", groups=range(1, 8))  # q of seven groups, no g_s
    with pytest.raises(InputError, match=r"no model has a g_s of gest .* both polarities"):
        CliRunner().invoke(command, [str(women)], catch_exceptions=False)


def make_words(path: Path, *, others: str = "") -> Path:
    """A run with GEST and what models said: lean grows with q over the 16 stereotypes, for model b the other way round.

    `others`: what is added to the names of those that spoke.
    """
    run = Run.create_or_open(path, protocol="default", provenance={})
    for model, sign in (("a", 1.0), ("b", -1.0)):
        rates = [(str(i), 0.1 * i) for i in range(1, 17)]
        made = {"gest": scores("3", rates)}
        shares = {"male": 0.4, "female": 0.4, "neither": 0.2, "place_a": 0.3, "place_b": 0.3, "place_c": 0.4}
        rest = {"undetected": 0.0, "silent": 0.0, "refused": 0.0, "mass": None, "thoughts": None, "cut": None}
        shares |= rest
        said = [shares | {"group": g, "score": sign * v / 4, "male": 0.4 + sign * v / 4} for g, v in rates for _ in "ab"]
        made["gest-who"] = pl.DataFrame(
            said, schema_overrides=dict.fromkeys(("mass", "thoughts", "cut"), pl.Float64)
        ).with_columns(language=pl.lit("en"), template=pl.lit("text"), sample=pl.int_range(pl.len(), dtype=pl.Int64))
        for name, frame in made.items():
            add_scores(run, name, model + (others if name == "gest-who" else ""), frame)
    return path


def test_words_have_their_condition_and_no_figure(tmp_path: Path) -> None:
    path = make_words(tmp_path / "run")
    record = json.loads((path / "run.json").read_text("utf8"))
    record["models"]["a"]["condition"] = {"name": "fair", "system": "Be fair."}
    (path / "run.json").write_text(json.dumps(record), "utf8")
    rows = json.loads(CliRunner().invoke(command, [str(path), "--format", "json"]).stdout)
    assert {(row["model"], row["condition"]) for row in rows} == {("a", "fair"), ("b", None)}
    for option in ("--figures", "--plot"):
        with pytest.raises(InputError, match=f"{option} shows gest against WinoBias"):
            CliRunner().invoke(command, [str(path), option, str(tmp_path / "x.svg")], catch_exceptions=False)


def test_words_of_other_models_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model has both gest and gest-who"):
        CliRunner().invoke(command, [str(make_words(tmp_path / "run", others="2"))], catch_exceptions=False)


def test_words_beside_gest(tmp_path: Path) -> None:
    run = make_words(tmp_path / "run")
    result = CliRunner().invoke(command, [str(run), "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(r["model"], r["value"], r["n"]) for r in rows if r["measure"] == "spearman"] == [("a", 1.0, 16), ("b", -1.0, 16)]
    assert len([r for r in rows if r["measure"] == "lean"]) == 32
    shown = CliRunner().invoke(command, [str(run)]).stdout
    assert "against gest-who's lean" in shown
    assert "1.00 [1.00, 1.00] (n = 16)" in shown


def test_a_scale_that_a_task_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gest has no scale eurogest"):
        CliRunner().invoke(command, [str(make_run(tmp_path / "run")), "--scale", "eurogest"], catch_exceptions=False)
