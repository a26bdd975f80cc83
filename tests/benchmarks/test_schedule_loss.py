"""What sweeps lose by cause: each part computed by hand."""

import pytest
import schedule_loss

from evaluator.sweep.planning.fit import Allocation
from evaluator.sweep.planning.job import Job
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.simulation import Slot


def test_the_parts_of_a_sweep_sum_to_its_time_over_the_bound() -> None:
    """m has two replicas on a's two devices, n one before the second of them; b's device, at half the price, does nothing."""
    m = Allocation("a", Placement(), 10, 40)
    n, n_on_b = Allocation("a", Placement(), 5, 10), Allocation("b", Placement(), 5, 10)
    slots = [
        Slot("m", 0, m, (0,), (0,), 0, 40),
        Slot("n", 0, n, (0,), (1,), 0, 15),
        Slot("m", 1, m, (0,), (1,), 20, 40),
    ]
    found = schedule_loss.lost(slots, [Job("m", (m,)), Job("n", (n, n_on_b))], {"a": [2], "b": [1]}, 30, {"a": 1.0, "b": 0.5})
    expected = {
        "scored": 40 + 5,  # n's would cost half on b
        "first_loads": 10 + 2.5,
        "more_loads": 10 + 2.5,
        "dearer": 5,
        "gaps": 5,
        "tail": 20,
    }
    assert found == pytest.approx({name: value / 75 for name, value in expected.items()})
    assert sum(found.values()) == pytest.approx(40 / 30)
