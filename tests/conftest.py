"""Fixtures shared by all tests."""

import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

# Helper modules beside this file (tiny_models) can be imported by every test; pytest's importlib mode adds no paths.
sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless a -m expression was given (`-m ''` runs everything)."""
    if config.getoption("-m") or any(a.startswith("-m") for a in config.invocation_params.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


MAY_SKIP = re.compile("GPU|CUDA|GEMMA|mount a tmpfs|root to mount")
"""Skips that are no failure even in CI: hardware, rights and a 250 MB model that CI does not have."""


def _fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With EVALUATOR_FAIL_SKIPS a skip is a failure: in CI it would hide a missing piece."""
    if os.environ.get("EVALUATOR_FAIL_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if not MAY_SKIP.search(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be missing: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips."""
    report = yield
    _fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips as a whole (pytest.importorskip)."""
    report = yield
    _fail_skip(report)
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets (EVALUATOR_DATA, else ../shared/data beside the checkout); skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EVALUATOR_DATA", default))
    if not (folder / "gest" / "gest.csv").is_file():
        pytest.skip(f"no public data at {folder}: set EVALUATOR_DATA to a folder that holds it")
    return folder
