"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets (EVALUATOR_DATA, else ../shared/data beside the checkout); skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EVALUATOR_DATA", default))
    if not (folder / "gest" / "gest.csv").is_file():
        pytest.skip(f"no public data at {folder}: set EVALUATOR_DATA to a folder that holds it")
    return folder
