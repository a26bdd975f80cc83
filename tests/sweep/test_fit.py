"""Which placements of a model fit which machines. Expected values: by hand, from public facts about models and cards.

A device holds weights x 1.05, shared out to the devices, and 3.25 GiB (0.25 of them given here for buffers) in 92% of its
memory: 72.68 GiB of an H100's 79, 35.88 of an A100's 39, 20.24 of an L4's 22.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from evaluator.cli.plan import show
from evaluator.scoring.driver import Prepared
from evaluator.scoring.failures import Failures
from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import GIB, Fleet, Node
from evaluator.sweep.planning.fit import Allocation, Demand, allocations
from evaluator.sweep.planning.placement import Placement
from evaluator.sweep.planning.plan import Needs, scheduled
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError, MachineError

H100 = Node("cuda", "NVIDIA H100 80GB HBM3", 8, 79 * GIB, "h")
A100S = [Node("cuda", "NVIDIA A100-PCIE-40GB", 4, 39 * GIB, f"a{i}") for i in range(2)]
L4 = Node("cuda", "NVIDIA L4", 1, 22 * GIB, "l")
MIXED = Fleet((H100, *A100S, L4))
TOKENS = 1_000_000

# Name, parameters, attention heads; (tensor parallel, pipeline parallel over as many machines) on H100, A100 and L4.
ONE, NO = (1, 1), None
MODELS = [
    ("gpt2", 124.4e6, 12, ONE, ONE, ONE),
    ("falcon-7b", 7.217e9, 71, ONE, ONE, ONE),
    ("Llama-3.1-8B", 8.030e9, 32, ONE, ONE, ONE),
    ("gemma-2-9b", 9.242e9, 16, ONE, ONE, NO),  # 21.3 GiB
    ("Qwen2.5-14B", 14.770e9, 40, ONE, ONE, NO),  # 32.1
    ("gpt-neox-20b", 20.555e9, 64, ONE, (2, 1), NO),  # 43.5, 23.4 on each of two
    ("gemma-2-27b", 27.227e9, 32, ONE, (2, 1), NO),
    ("Qwen2.5-32B", 32.764e9, 40, ONE, (2, 1), NO),  # 67.3, 35.3
    ("falcon-40b", 41.840e9, 128, (2, 1), (4, 1), NO),  # 85.1, 44.2, 23.7
    ("Llama-2-70b", 68.977e9, 64, (2, 1), (4, 2), NO),  # 138.2, 70.7, 37.0, 20.1
    ("Qwen2.5-72B", 72.706e9, 64, (4, 1), (4, 2), NO),  # 74.3 on each of two
    ("Mixtral-8x22B", 140.621e9, 48, (4, 1), NO, NO),  # 72.0 on each of four, 37.6 of eight
    ("bloom", 176.247e9, 112, (8, 1), NO, NO),
    ("falcon-180B", 179.522e9, 232, (8, 1), NO, NO),  # 91.0 on each of four, 47.1 of eight
    ("Llama-3.1-405B", 405.853e9, 128, NO, NO, NO),  # 102.5 on each of eight
]


def demand(parameters: float = 1e9, heads: int = 32, engine: str = "vllm", tokens: int = TOKENS, **options: Any) -> Demand:
    asked = EngineOptions(**options)
    return Demand("m", engine, "bfloat16", int(parameters), 2 * parameters, GIB // 4, heads, tokens, asked)


def on(node: Node, found: tuple[Allocation, ...], *, shared: bool = False) -> list[Placement]:
    return [w.placement for w in found if w.family == node.family and (w.placement.share < 1) == shared]


@pytest.mark.parametrize(("name", "parameters", "heads", "h100", "a100", "l4"), MODELS, ids=[m[0] for m in MODELS])
def test_real_models_on_a_mixed_fleet(
    name: str,
    parameters: float,
    heads: int,
    h100: tuple[int, int] | None,
    a100: tuple[int, int] | None,
    l4: tuple[int, int] | None,
) -> None:
    if not (h100 or a100 or l4):
        with pytest.raises(InputError, match=re.escape("29.8 GiB a device are missing")):
            allocations(demand(parameters, heads), MIXED)
        return
    found = allocations(demand(parameters, heads), MIXED)
    for node, sizes in ((H100, h100), (A100S[0], a100), (L4, l4)):
        expected = [] if sizes is None else [Placement(sizes[0], sizes[1], nodes=sizes[1])]
        assert on(node, found) == expected, node.card


def test_the_printed_plan_of_all_of_them_keeps_to_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    demands = [replace(demand(parameters, heads), name=name) for name, parameters, heads, *placed in MODELS if any(placed)]
    needs = [Needs(one, 14_000, 14_000, (), allocations(one, MIXED)) for one in demands]
    show(replace(scheduled(Prepared((), (), Failures()), MIXED, needs, Speeds()), price=2.0))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    planned, order = printed.split("schedule", 1)
    for one in demands:
        assert one.name in planned
        assert f"{one.name} #0" in order


def test_small_models_may_share_a_gpu() -> None:
    # 3.25 GiB and the weights' 2.06: an eighth of an H100 is 9.1 GiB, of an A100 4.5; a quarter of an A100 9.0, of an L4 5.1.
    found = allocations(demand(1.05e9), MIXED)
    shares = {node.card: [p.share for p in on(node, found, shared=True)] for node in (H100, A100S[0], L4)}
    assert shares == {H100.card: [0.125, 0.25, 0.5], A100S[0].card: [0.25, 0.5], L4.card: [0.5]}
    # A part of the card does that part of its work, but no model goes faster than the host: 60,000 tokens a second.
    seconds = {w.placement.share: w.score for w in found if w.family == H100.family}
    assert seconds[0.125] == pytest.approx(TOKENS * 1.05 / 12_500)
    assert seconds[0.5] == pytest.approx(TOKENS * 1.05 / 50_000)
    assert seconds[1.0] == pytest.approx(TOKENS / 60_000)


def test_seconds_to_load_and_to_score() -> None:
    # 140 GB on two devices at 1.5 GB/s each, 40 s for the engine; 2 x 100,000 tokens a second for each billion parameters.
    (allocation,) = allocations(demand(70e9, 64), Fleet((H100,)))
    assert allocation.load == pytest.approx(40 + 70 / 1.5)
    assert allocation.score == pytest.approx(TOKENS * 70 / 200_000)
    slower = allocations(demand(20e9), Fleet((A100S[0],)))[0]
    assert slower.score == pytest.approx(TOKENS * 20 / (2 * 32_000))
    assert allocations(demand(20e9), Fleet((A100S[0],)), Speeds(1000.0))[0].score == pytest.approx(TOKENS * 20 / 2000)


def test_nothing_left_to_score_takes_no_time() -> None:
    assert {(w.load, w.score) for w in allocations(demand(1e9, tokens=0), MIXED)} == {(0.0, 0.0)}


@pytest.mark.parametrize(
    ("heads", "kv_heads", "devices", "sizes"),
    [
        (64, 8, 8, (8, 1)),
        (64, 8, 16, (16, 1)),  # each key is on two
        (128, 0, 8, (8, 1)),
        (71, 1, 4, (1, 4)),  # a prime number of heads
        (126, 0, 4, (2, 2)),
        (24, 6, 4, (2, 2)),  # the heads would do, six keys and values don't go into four parts, nor four into six
        (12, 12, 3, (3, 1)),
        (40, 8, 6, (2, 3)),
    ],
)
def test_tensor_parallel_as_far_as_the_heads_go_stages_for_the_rest(
    heads: int, kv_heads: int, devices: int, sizes: tuple[int, int]
) -> None:
    assert replace(demand(heads=heads), kv_heads=kv_heads).divided(devices) == sizes


def test_awkward_heads_get_pipeline_stages_inside_a_machine() -> None:
    # 85.1 GiB on one, 44.2 on each of two: 127 heads can't be shared out to two, 126 can.
    assert on(H100, allocations(demand(41.84e9, 127), Fleet((H100,)))) == [Placement(1, 2)]
    assert on(H100, allocations(demand(41.84e9, 126), Fleet((H100,)))) == [Placement(2)]
    # 23.7 GiB on each of four A100s; no more stages than layers.
    assert on(A100S[0], allocations(demand(41.84e9, 126), Fleet((A100S[0],)))) == [Placement(2, 2)]
    with pytest.raises(InputError, match="GiB a device are missing"):
        allocations(replace(demand(41.84e9, 127), layers=3), Fleet((A100S[0],)))
    # Larger than a machine: all devices of each take part.
    nodes = tuple(Node("cuda", A100S[0].card, 4, 39 * GIB, f"a{i}") for i in range(2))
    assert on(nodes[0], allocations(demand(70.554e9, 63), Fleet(nodes))) == [Placement(1, 8, nodes=2)]
    # A machine of three: 44.2 GiB on each of two, 30.5 on each of three, which 126 heads go into.
    three = Node("cuda", A100S[0].card, 3, 39 * GIB, "three")
    assert on(three, allocations(demand(41.84e9, 126), Fleet((three,)))) == [Placement(3)]


def test_a_model_in_a_folder_runs_where_the_folder_is() -> None:
    here = replace(A100S[0], address="node a")
    not_here = replace(A100S[1], address="node b", lacks=("m", "other"))
    found = allocations(demand(1e9), Fleet((here, not_here)))
    assert {w.family for w in found} == {here.family} == {"4 × NVIDIA A100-PCIE-40GB"}
    assert not_here.family == "4 × NVIDIA A100-PCIE-40GB without m, other"
    # Of two machines that could hold it together only one has it.
    with pytest.raises(InputError, match="GiB a device are missing"):
        allocations(demand(70.554e9, 64), Fleet((here, not_here)))
    with pytest.raises(MachineError, match=r"m: no machine has /models/m as it is here \(node a, node b\): copy it"):
        allocations(replace(demand(1e9), folder="/models/m"), Fleet((replace(here, lacks=("m",)), not_here)))


def test_larger_than_a_machine_goes_over_several_of_the_same_family() -> None:
    nodes = [Node("cuda", H100.card, 8, 79 * GIB, f"h{i}") for i in range(3)]
    # 102.5 GiB on each of eight, 52.9 on each of sixteen.
    assert on(H100, allocations(demand(405.853e9, 128), Fleet(tuple(nodes)))) == [Placement(8, 2, nodes=2)]
    # Not over machines with different cards or counts.
    with pytest.raises(InputError, match=r"on 8 device.*29\.8 GiB a device are missing"):
        allocations(demand(405.853e9, 128), Fleet((nodes[0], Node("cuda", H100.card, 4, 79 * GIB, "other"))))


def test_a_machine_whose_memory_is_taken_does_not_count() -> None:
    free, taken = A100S[0], Node("cuda", A100S[0].card, 4, 4 * GIB, "taken")
    assert on(free, allocations(demand(70.554e9, 64), Fleet((free, A100S[1])))) == [Placement(4, 2, nodes=2)]
    with pytest.raises(InputError, match="missing"):
        allocations(demand(70.554e9, 64), Fleet((free, taken)))


def test_what_is_asked_for_is_what_is_placed() -> None:
    assert on(H100, allocations(demand(1e9, tensor_parallel=4), MIXED)) == [Placement(4)]
    found = allocations(demand(1e9, tensor_parallel=4, pipeline_parallel=2), MIXED)
    assert {(w.family, w.placement) for w in found} == {
        (H100.family, Placement(4, 2)),
        (A100S[0].family, Placement(4, 2, nodes=2)),
    }
    with pytest.raises(InputError, match="asks for 16 devices, there are 17"):
        allocations(demand(1e9, tensor_parallel=16), MIXED)


def test_transformers_lays_layers_over_devices() -> None:
    found = allocations(demand(70.554e9, 64, "transformers"), MIXED)
    assert {(w.family, w.placement) for w in found} == {(H100.family, Placement(spread=2))}
    assert found[0].score == pytest.approx(TOKENS * 70.554 / 100_000)  # one device computes at a time
    # ONNX runs on one device only: 141.2 GiB on one, 72.7 are there.
    with pytest.raises(InputError, match=r"68\.6 GiB a device are missing"):
        allocations(demand(70.554e9, 64, "onnx"), MIXED)


def test_the_missing_number_is_the_smallest_there_is() -> None:
    # 67.32 GiB on one device where 35.88 are free, on each of four 19.3: but one device is all there is.
    with pytest.raises(InputError, match=r"needs 67\.3 GiB on 1 device.*35\.9 GiB.*31\.4 GiB a device are missing"):
        allocations(demand(32.764e9, 40), Fleet((Node("cuda", A100S[0].card, 1, 39 * GIB), L4)))


def test_cpu_workers_are_not_divided() -> None:
    workers = Fleet((Node("cpu", "CPU (8 cores)", 4, 4 * GIB),))
    # 1.96 GiB of weights and 0.75 in 3.68; a second model: 7.8 + 0.75 on one, 4.66 on two, 2.7 on four.
    assert [w.placement for w in allocations(demand(1e9), workers)] == [Placement()]
    assert [w.placement for w in allocations(demand(4e9), workers)] == [Placement(4)]
    # Nor does vLLM's CPU build go over several machines.
    with pytest.raises(InputError, match="missing"):
        allocations(demand(4e9), Fleet(tuple(Node("cpu", "CPU (8 cores)", 2, 4 * GIB, f"c{i}") for i in range(2))))
