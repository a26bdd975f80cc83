"""A sweep says what it was asked before it prepares its models, and takes that back where it is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

from evaluator.cli import cli
from evaluator.scoring import driver
from evaluator.scoring.progress import ProgressView
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator_serving.errors import InputError


def asked(tmp_path: Path) -> RunSpec:
    model = tiny_model("gpt2", tmp_path / "model")
    return RunSpec((ModelSpec(str(model), "transformers", label="m"),), (task("gest-demo"),), tmp_path / "run", limit=4)


def test_a_sweep_killed_while_it_prepares_leaves_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    spec = asked(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "prepare_model", killed)
        with pytest.raises(KilledError):
            sweep(spec, SweepOptions(ray="none"))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["attempts"][0]["asked"] == {"tasks": ["gest-demo"], "models": [spec.models[0].spec]}
    assert record["tasks"]["gest-demo"]["samples"] == 160
    for command in ("status", "report"):
        said = CliRunner().invoke(cli, [command, str(tmp_path / "run")])
        assert said.exception is None or isinstance(said.exception, InputError), command
    done = sweep(spec, SweepOptions(ray="none"))
    assert not done.errors
    assert list(done.run.record["models"]) == ["m"]
    with done.run.locked(), ProgressView(done.run.path, []) as view:
        view.wait("starting Ray on this machine (--ray local), attempt 2 of 3")
        said = CliRunner().invoke(cli, ["status", str(tmp_path / "run")])
        assert "waiting: starting Ray on this machine (--ray local), attempt 2 of 3" in said.stdout
    assert "waiting:" not in CliRunner().invoke(cli, ["status", str(tmp_path / "run")]).stdout


@pytest.mark.parametrize("date", ["2020-01-01", None])
def test_a_sweep_has_its_date_from_the_beginning_and_resumes_with_it(tmp_path: Path, date: str | None) -> None:
    spec = replace(asked(tmp_path), date=date)
    for _ in range(2):
        assert not sweep(spec, SweepOptions(ray="none")).errors
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["date"]
    assert recorded["given"] is bool(date)
    assert not date or recorded["date"] == date


def test_a_refused_sweep_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise InputError("no")

    monkeypatch.setattr(driver, "prepare_model", refused)
    with pytest.raises(InputError, match="no"):
        sweep(asked(tmp_path), SweepOptions(ray="none"))
    assert not (tmp_path / "run").exists()


def test_ray_has_its_sockets_where_their_paths_are_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from evaluator.sweep.on_ray.cluster import _short_folder

    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert _short_folder() == {}
    monkeypatch.setenv("TMPDIR", "/tmp/" + "long" * 20)
    assert _short_folder() == {"_temp_dir": f"/tmp/ray-{os.getuid()}"}
    with pytest.raises(InputError, match="set RAY_TMPDIR to a folder with a short one"):
        _short_folder(())
