"""Fixtures shared by all tests."""

import os
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With EVALUATOR_FAIL_SKIPS a skipped test fails, unless it needs a GPU: in CI a skip would hide a missing piece."""
    report = yield
    if os.environ.get("EVALUATOR_FAIL_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if "GPU" not in reason and "CUDA" not in reason:
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be missing: {reason}"
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets (EVALUATOR_DATA, else ../shared/data beside the checkout); skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EVALUATOR_DATA", default))
    if not (folder / "gest" / "gest.csv").is_file():
        pytest.skip(f"no public data at {folder}: set EVALUATOR_DATA to a folder that holds it")
    return folder
