"""Placements as Ray knows them: a placement group for a replica's devices, and the options of the actor that lives in it."""

from collections.abc import Sequence
from typing import Any

from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from evaluator.sweep.planning.placement import Placement

NODE = "ray.io/node-id"
"""Ray's own label of every node."""


def ask(placement: Placement, nodes: Sequence[str], *, cuda: bool) -> PlacementGroup:
    """Ask for the devices of one replica on some of `nodes` (ids of machines that the model fits).

    A replica on one machine may come to lie on any of them. One over several gets the first ones, in whole: Ray's own
    packing could put one stage of a pipeline on two machines.
    """
    bundles = placement.bundles(cuda=cuda)
    if placement.nodes == 1:
        labels = [{NODE: f"in({','.join(nodes)})"}] if nodes else None  # the one machine of a cluster that was started here
        strategy = "STRICT_PACK"
    else:
        labels = [{NODE: nodes[n]} for n in placement.bundle_nodes()]
        strategy = "PACK"
    asked: PlacementGroup = placement_group(bundles, strategy=strategy, bundle_label_selector=labels)
    return asked


def actor_options(placement: Placement, group: PlacementGroup, *, cuda: bool, beside: bool = False) -> dict[str, Any]:
    """Options of the actor that is the replica: on one machine it holds all devices, over several none (see `bundles`).

    With `beside` another actor holds the devices (CPU workers) already, and this one uses them too.
    """
    own = placement.devices * placement.share if cuda and placement.nodes == 1 else 0
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True)
    threads = placement.devices // (placement.tensor_parallel * placement.pipeline_parallel)
    environment = {"TOKENIZERS_PARALLELISM": "false"}
    if not cuda:
        environment["OMP_NUM_THREADS"] = str(threads)  # of each process: vLLM starts one a rank
    elif placement.nodes > 1:
        # The replica's own process has no GPU, yet vLLM asks there what kind of GPU its workers have.
        environment["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    return {
        "num_cpus": 0 if beside else 1 if cuda else placement.devices,
        "num_gpus": own,
        "scheduling_strategy": strategy,
        "runtime_env": {"env_vars": environment},
        "max_restarts": 0,
    }
