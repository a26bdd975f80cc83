"""Ray's command line, and its clusters within a test, with ten times Ray's own half minute for a node to start.

Where tests, other clusters and vLLM share two processors half a minute may not do, and Ray has no setting for it.

    python -m tests.sweep.patient_ray start …
"""

import time
from typing import Any

import ray._private.node
from ray.cluster_utils import Cluster

SLOWER = 10


class _Clock:
    """The module `time` as a node's start sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def monotonic() -> float:
        """Seconds that pass more slowly."""
        return time.monotonic() / SLOWER


class PatientCluster(Cluster):  # type: ignore[misc]
    """Ray's cluster for tests. Importing this makes nodes of this process patient, too."""

    def _wait_for_node(self, node: Any, timeout: float = 30) -> None:
        super()._wait_for_node(node, timeout * SLOWER)


ray._private.node.time = _Clock()

if __name__ == "__main__":
    from ray.scripts.scripts import main

    main()
