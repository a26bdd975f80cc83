"""Load a model into an engine, with the checks that apply to every engine."""

from collections.abc import Sequence
from typing import get_args

from evaluator_serving.checks.causality import check_causal, probes
from evaluator_serving.engine import DeviceKind, Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import engine_class
from evaluator_serving.rows import Row, Workload


def open_engine(
    name: str, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
) -> Engine:
    """Load `source` into the engine called `name`, sized for `workload`, where there is none for `rows`.

    Raises InputError for a model that can't be loaded and, whatever it is called and whichever engine it is in, for one
    that is asked as a generative model and sees ahead.
    """
    made = engine_class(name)
    texts = probes(rows, source.context)
    known = [*rows, *(row for probe in texts for row in (probe.one, probe.other))]
    engine = made(source, options, known, workload or Workload.of(rows))
    try:
        if getattr(engine, "device_kind", None) not in get_args(DeviceKind):
            kinds = ", ".join(get_args(DeviceKind))
            raise InputError(f"engine {name!r} has an invalid device_kind: it must be one of {kinds}")
        check_causal(engine, source, options, texts)
    except BaseException:
        engine.close()
        raise
    return engine
