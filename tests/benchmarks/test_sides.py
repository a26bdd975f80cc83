"""What benchmarks of engines share: a way's process and its parent, on ways of which all is known; the figures by hand."""

from pathlib import Path
from typing import Any

import mlm_throughput
import sides

from evaluator.bench.measure import interleave
from evaluator.bench.process import BackendProcess

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from evaluator.bench.counter import Counter
from sides import serve

def doubles(model, counter):
    def score(texts):
        print("noise of a library")
        counter.counts = True
        counter.add(len(texts))
        return [2.0 * len(text) + len(model) for text in texts]
    return score

def breaks(model, counter):
    return lambda texts: [1.0 / (len(texts) - 1) for _ in texts]

serve({{"doubles": doubles, "breaks": breaks, "fails": lambda model, counter: 1 / 0}}, Counter(), ["few", "texts"])
"""
BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


def test_ways_in_processes_of_their_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=BENCHMARKS))
    ways = [
        BackendProcess.start(sides.Side(name, "m", 1), (str(program), "--serve")) for name in ("doubles", "breaks", "fails")
    ]
    rates, told = iter([1.0, 2.0]), []
    parts = sides.cut(["a", "bcd", "ef"], 2)
    assert parts == [["a", "bcd"], ["ef"]]
    found = interleave(ways, ['["a", "bcd"]', '["ef"]'], lambda: {"rate": next(rates)}, told.append)
    for way in ways:
        way.close()
    doubles, breaks, fails = ways
    assert found == [{"rate": 1.0}, {"rate": 2.0}]
    assert told == ["slice 1 of 2", "slice 2 of 2"]
    assert sides.numbers(doubles) == [3.0, 7.0, 5.0]
    assert [answer["computed"] for answer in doubles.slices.values()] == [2, 1]
    assert doubles.ready["load_s"] >= 0
    assert breaks.error == "ZeroDivisionError: float division by zero"
    assert list(breaks.slices) == [0]
    assert (fails.error, fails.slices) == ("ZeroDivisionError: division by zero", {})
    assert fails.status == "fails: can't run here: ZeroDivisionError: division by zero"


def worker(name: str, *answers: dict[str, Any], error: str | None = None) -> BackendProcess[Any]:
    made: BackendProcess[Any] = BackendProcess(sides.Side(name, "m", 1), None, error=error)  # type: ignore[arg-type]
    made.slices = dict(enumerate(answers))
    return made


def test_figures_of_masked_models() -> None:
    """Medians over repetitions, each against the published procedure of the same repetition."""
    plain = {"host": 100 << 20, "numbers": [1.0, 2.0]}
    ours = {"host": 50 << 20, "numbers": [1.0, 2.25], "encoder_seconds": 1.0, "head_seconds": 0.5, "head_flop": 5e9}
    workers = [
        worker("published", *({**plain, "wall": wall} for wall in (6.0, 8.0, 30.0))),
        worker("vllm", error="no vllm"),
        worker("onnx", *({**ours, "wall": wall, "encoder_flop": 1e10} for wall in (2.0, 1.0, 3.0))),
    ]
    peaks = [{"matrix_gflop_s": rate} for rate in (10.0, 20.0, 20.0)]
    told = mlm_throughput.digest(workers, peaks, {}, 2)
    assert told["peak_gflop_s"] == [10.0, 20.0, 20.0]
    published, onnx = told["ways"]["published"], told["ways"]["onnx"]
    assert (published["ms_a_sentence"], published["ratio"], published["max_difference"]) == (4000.0, 1.0, 0.0)
    assert onnx["ms_a_sentence"] == 1000.0
    assert onnx["ms_fastest_slowest"] == [500.0, 1500.0]
    assert onnx["ratio"] == 8.0  # of 3, 8 and 10; that of the medians is 4
    assert (onnx["peak_mib"], onnx["max_difference"]) == (50, 0.25)
    assert (onnx["encoder_gflop_s"], onnx["encoder_share_of_peak"]) == (10.0, 0.5)
    assert (onnx["all_gflop_s"], onnx["all_share_of_peak"]) == (7.5, 0.75)
    assert onnx["seconds_in"] == {"encoder": 1.0, "head": 0.5}
    assert told["ways"]["vllm"] == {"failed": "no vllm"}
    assert "did not run: no vllm" in mlm_throughput.table([{"case": "bert-base", "aim": 7.0, **told}])
