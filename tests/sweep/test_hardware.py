"""Which devices there are: the driver's own words, what is visible of them, and fleets as a person writes them."""

import os
import stat
from pathlib import Path

import pytest

from evaluator.sweep.hardware import GIB, Fleet, Node, fleet_of, gpus, local_fleet, parse_fleet, parse_gpus, visible
from evaluator_serving.errors import InputError

QUERY = """0, GPU-aaaa1111-0000, NVIDIA H100 80GB HBM3, 80995
1, GPU-bbbb2222-0000, NVIDIA H100 80GB HBM3, 40000
2, GPU-cccc3333-0000, NVIDIA L4, 22600
"""
LISTING = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa1111-0000)
  MIG 3g.40gb     Device  0: (UUID: MIG-1234-0)
  MIG 1g.10gb     Device  1: (UUID: MIG-1234-1)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb2222-0000)
GPU 2: NVIDIA L4 (UUID: GPU-cccc3333-0000)
"""


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("0,2", ["GPU-aaaa1111-0000", "GPU-cccc3333-0000"]),
        ("2,0", ["GPU-cccc3333-0000", "GPU-aaaa1111-0000"]),
        ("GPU-bbbb2222-0000", ["GPU-bbbb2222-0000"]),
        ("GPU-bb,GPU-cc", ["GPU-bbbb2222-0000", "GPU-cccc3333-0000"]),
        ("MIG-1234-1", ["MIG-1234-1"]),
        ("", []),
        ("-1", []),
        ("1,7,2", ["GPU-bbbb2222-0000"]),
        ("1,1", ["GPU-bbbb2222-0000"]),
        (None, ["GPU-bbbb2222-0000", "GPU-cccc3333-0000", "MIG-1234-0", "MIG-1234-1"]),
    ],
)
def test_visible_devices_by_number_uuid_and_slice(chosen: str | None, expected: list[str]) -> None:
    """As CUDA reads it: what stands behind a device that isn't there doesn't count; a card that is cut up is its slices."""
    assert [gpu.uuid for gpu in visible(parse_gpus(QUERY, LISTING), chosen)] == expected


def test_a_slice_has_its_profiles_memory() -> None:
    slices = {gpu.uuid: gpu for gpu in parse_gpus(QUERY, LISTING)}
    assert slices["MIG-1234-0"].free == 40 * 10**9
    assert "H100" in slices["MIG-1234-1"].name
    assert slices["GPU-cccc3333-0000"].free == 22600 << 20


def test_the_drivers_tool_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program called nvidia-smi that says the above."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\nif [ "$1" = -L ]; then cat <<E\n{LISTING}E\nelse cat <<E\n{QUERY}E\nfi\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-cccc")
    assert [gpu.index for gpu in gpus()] == ["1", "2"]
    fleet = local_fleet()
    assert (fleet.kind, fleet.devices) == ("cuda", 2)
    assert fleet.nodes[0].memory == 22600 << 20, "what any of them has free"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local_fleet(workers=2, worker_memory=GIB) == Fleet((Node("cpu", f"CPU ({os.cpu_count()} cores)", 2, GIB),))


def test_fleets_as_written() -> None:
    fleet = parse_fleet("1x8xH100-80, 2x4xA100-40,L4-24")
    assert [(n.devices, n.memory // GIB) for n in fleet.nodes] == [(8, 80), (4, 40), (4, 40), (1, 24)]
    assert list(fleet.families()) == ["8 × H100-80", "4 × A100-40", "1 × L4-24"]
    assert fleet.nodes[0].throughput > fleet.nodes[1].throughput > fleet.nodes[3].throughput
    for wrong in ("", "8", "H100", "0xH100-80", "8xH100-0", "1x8xH100-80;2xL4-24,"):
        with pytest.raises(InputError, match="--fleet"):
            parse_fleet(wrong)


def test_cpu_workers_count_only_where_there_is_no_gpu() -> None:
    gpu = Node("cuda", "NVIDIA L4", 1, GIB, "a")
    cpu, head = Node("cpu", "CPU worker", 4, GIB, "b"), Node("cpu", "CPU worker", 0, 0)
    assert fleet_of([head, cpu, gpu]).nodes == (gpu,)
    assert fleet_of([head, cpu]).nodes == (cpu,)
    with pytest.raises(InputError, match="neither GPUs nor CPU cores"):
        fleet_of([head])
