"""An engine that takes its time, so that a test can do something to a sweep while it runs. Named as module:Class."""

import time
from collections.abc import Sequence

from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import Numbers, TransformersEngine

SECONDS = 3.0


class SlowEngine(TransformersEngine):
    """The transformers engine, seconds a chunk slower."""

    def score(self, rows: Sequence[Row]) -> list[Numbers]:
        """As the transformers engine does."""
        time.sleep(SECONDS)
        return super().score(rows)
