"""Peak memory is this process's own."""

import subprocess
import sys

import numpy as np
import psutil

from evaluator_serving.memory import available_memory, peak_memory

CHILD = "from evaluator_serving.memory import peak_memory; print(peak_memory())"


def test_grows_with_what_is_used_and_is_not_inherited() -> None:
    before = peak_memory()
    block = np.ones(300 << 20, dtype=np.uint8)
    after = peak_memory()
    assert block.sum() == 300 << 20
    assert after >= before
    assert after > 300 << 20
    child = int(subprocess.run([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, check=True).stdout)
    assert 1 << 20 < child < 200 << 20


def test_available_memory_is_below_what_the_machine_has() -> None:
    assert 0 < available_memory() < psutil.virtual_memory().total
