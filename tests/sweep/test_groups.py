"""What the pool asks of Ray, held against vLLM's own checks: real placement groups on logical GPUs, vLLM's own code in them.

No GPU is needed: `num_gpus` of a Ray node is a number, and vLLM's platform is told that its device key is CUDA's. On one
machine vLLM gets its multiprocessing executor, over several its Ray executor in the group that the pool has asked for.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from evaluator.sweep.planning.placement import Placement

pytestmark = [pytest.mark.ray, pytest.mark.vllm]


class Probe:
    """Stands where a replica stands and asks vLLM whether it could start its workers there."""

    def devices(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def look(self, placement: Placement) -> dict[str, Any]:
        import ray
        from vllm.config import ParallelConfig
        from vllm.platforms import current_platform
        from vllm.v1.executor.ray_utils import get_bundles_sorted_by_node, initialize_ray_cluster

        from evaluator_serving.engine import EngineOptions
        from evaluator_serving.vllm_engine.engine import executor

        type(current_platform).ray_device_key = "GPU"
        options = placement.options(EngineOptions())
        config = ParallelConfig(
            tensor_parallel_size=options.tensor_parallel,
            pipeline_parallel_size=options.pipeline_parallel,
            distributed_executor_backend=executor(options),
        )
        seen = {
            "executor": config.distributed_executor_backend,
            "node": ray.get_runtime_context().get_node_id(),
            "visible": self.devices(),
            "ranks": [],
        }
        if config.use_ray:
            initialize_ray_cluster(config, require_gpu_on_driver=False)
            seen["ranks"] = [node for _, node, _ in get_bundles_sorted_by_node(config.placement_group)]
        return seen


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """Ids of two Ray nodes with eight logical GPUs each, beside a head without any."""
    import ray

    from tests.sweep.patient_ray import PatientCluster

    cluster = PatientCluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2, num_gpus=8)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield [node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU")]
    finally:
        ray.shutdown()
        cluster.shutdown()


def placed(placement: Placement, nodes: list[str], question: str = "look") -> Any:
    """What a probe says in the place that the pool gives a replica."""
    import ray
    from ray.util.placement_group import remove_placement_group

    from evaluator.sweep.on_ray.placement_groups import actor_options, ask

    group = ask(placement, nodes, cuda=True)
    try:
        ray.get(group.ready(), timeout=300)
        probe = ray.remote(Probe).options(**actor_options(placement, group, cuda=True)).remote()
        asked = probe.look.remote(placement) if question == "look" else probe.devices.remote()
        seen = ray.get(asked, timeout=600)
        ray.kill(probe)
        return seen
    finally:
        remove_placement_group(group)


@pytest.mark.slow
@pytest.mark.parametrize("placement", [Placement(), Placement(tensor_parallel=2), Placement(4, 2)], ids="{0.devices}".format)
def test_a_replica_on_one_machine_sees_its_gpus_and_vllm_starts_processes(placement: Placement, nodes: list[str]) -> None:
    seen = placed(placement, nodes[:1])
    assert seen["node"] == nodes[0]
    assert len(seen["visible"].split(",")) == placement.devices
    assert seen["executor"] == ("mp" if placement.devices > 1 else "uni")


@pytest.mark.slow
def test_layers_laid_out_and_shared_cards_have_their_gpus(nodes: list[str]) -> None:
    assert len(placed(Placement(spread=4), nodes, "devices").split(",")) == 4
    assert len(placed(Placement(share=0.25), nodes, "devices").split(",")) == 1


@pytest.mark.slow
def test_a_replica_over_two_machines_has_whole_stages_on_each(nodes: list[str]) -> None:
    """vLLM's own reading of the group: ranks 0 to 7, the first stage, on the replica's own machine, 8 to 15 on the other."""
    chosen = nodes[::-1]
    seen = placed(Placement(tensor_parallel=8, pipeline_parallel=2, nodes=2), chosen)
    assert seen["executor"] == "ray"
    assert seen["node"] == chosen[0]
    assert seen["visible"] is None, "the replica's own process must not hide the GPUs from vLLM"
    assert seen["ranks"] == [chosen[0]] * 8 + [chosen[1]] * 8


def test_bundles_name_their_machine() -> None:
    wide = Placement(tensor_parallel=8, pipeline_parallel=2, nodes=2)
    assert Counter(wide.bundle_nodes()) == {0: 9, 1: 8}
    assert len(wide.bundles(cuda=True)) == len(wide.bundle_nodes()) == 17
    with pytest.raises(ValueError, match="3 pipeline stages"):
        Placement(pipeline_parallel=3, nodes=2)
