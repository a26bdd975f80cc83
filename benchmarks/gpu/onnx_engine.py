"""The onnx engine on the device: correctness in float32 and float16, and speed relative to transformers."""

import importlib.util
import time
from pathlib import Path

from gpu.inputs import difference, masked_rows, plain, random_bert, tokens_a_second
from gpu.section import Section, SkipError

from evaluator_serving.checks.verify import TOLERANCE
from evaluator_serving.engine import EngineOptions
from evaluator_serving.memory import Held
from evaluator_serving.models.config import quiet
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine

CHECKED = {True: 12, False: 48}
TIMED = {True: 40, False: 4000}


def run(section: Section, scratch: Path) -> None:
    """All parts."""
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise SkipError(f"{missing[0]} isn't installed: pip install onnx onnxruntime-gpu")
    import onnxruntime

    providers = onnxruntime.get_available_providers()
    if section.device == "cuda" and "CUDAExecutionProvider" not in providers:
        raise SkipError(
            f"this ONNX Runtime has no CUDAExecutionProvider, only {', '.join(providers)}: pip install onnxruntime-gpu"
        )
    quiet()
    source = resolve(str(random_bert(scratch / "bert", small=section.small)))
    rows = masked_rows(source, TIMED[section.small])
    few = rows[: CHECKED[section.small]]
    expected = plain(source, few)
    for dtype in ("float32", "float16"):
        with section.part(dtype) as part:
            if dtype == "float16" and section.device == "cpu":
                raise SkipError("the onnx engine runs float16 on CUDA only")
            held = Held()
            held.remember()
            options = EngineOptions(dtype=dtype, device=section.device)
            begun = time.perf_counter()
            engine = open_engine("onnx", source, options, few)
            part.measured(start_seconds=time.perf_counter() - begun, details=engine.details())
            part.holds(f"ONNX Runtime really computes on {section.device}", _on(section.device, source, dtype))
            part.check(
                f"largest |Δ log P| from float64 over {expected.size}",
                difference(engine.score(few), expected),
                TOLERANCE[dtype],
            )
            part.measured(tokens_a_second=tokens_a_second(engine, rows))
            engine.close()
            del engine
            part.holds("the memory is free again", held.is_back())
    with section.part("transformers beside it") as part:
        engine = open_engine("transformers", source, EngineOptions(device=section.device), few)
        part.check("largest |Δ log P| from float64", difference(engine.score(few), expected), TOLERANCE["float32"])
        part.measured(tokens_a_second=tokens_a_second(engine, rows))
        engine.close()


def _on(device: str, source: ModelSource, dtype: str) -> bool:
    """ONNX Runtime goes over to the CPU with a warning where CUDA's libraries are missing: ask a session what it uses."""
    import onnxruntime

    from evaluator_serving.onnx.export_cache import cached_export
    from evaluator_serving.onnx.runners import provider_names

    graph = next(iter(sorted(cached_export(source, dtype, "masked").glob("*.onnx"))))
    session = onnxruntime.InferenceSession(str(graph), providers=provider_names(device, tensorrt=False)[1])
    return session.get_providers()[0] == ("CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider")
