"""A model as ONNX graphs, compared with transformers (`evaluator export`)."""

from collections.abc import Callable
from pathlib import Path

from evaluator.tasks.gest import gest_demo
from evaluator.vocabulary import DataSource
from evaluator_serving.checks.verify import verify_engine
from evaluator_serving.chunks import merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve_here
from evaluator_serving.onnx.export import export
from evaluator_serving.opening import open_engine


def export_model(
    model: str,
    out: Path,
    *,
    dtype: str = "float32",
    allow_pickle: bool = False,
    verify: bool = True,
    report: Callable[[str], None] = print,
) -> None:
    """Write a masked or a generative language model into the new folder `out` as ONNX graphs.

    Args:
        dtype: of the weights: float32, float16 or int8.
        allow_pickle: whether the weights may be pickled files.
        verify: compare the graphs with transformers on the shipped demo sentences.
        report: called with a line on what was written, and one on how it compares.

    Raises InputError for other models and for a folder that exists, and EngineError where the graphs answer otherwise.
    """
    source = resolve_here(model, allow_pickle=allow_pickle)
    manifest = export(source, out, dtype)
    size = sum(file.stat().st_size for file in out.iterdir())
    report(f"{out}: {manifest.family}, {dtype}, opset {manifest.versions['opset']}, {size / 1e6:.0f} MB")
    if not verify:
        return
    if dtype == "float16":
        report("not verified: float16 runs on CUDA only; a run on CUDA verifies it")
        return
    task = gest_demo()
    requests = task.render(task.load(DataSource()), frozenset({manifest.head}), "default").requests
    encoder = encoder_for(source)
    rows = merge([encoder.encode(request) for request in requests.values()]).rows
    options = EngineOptions(dtype=dtype, device="cpu", extra={"folder": str(out)})
    engine = open_engine("onnx", source, options, rows)
    try:
        report(str(verify_engine(engine, source, options, rows)))
    finally:
        engine.close()
