"""What bfloat16 does to GEST's g_s on the device, in the transformers engine and in vLLM, against float64."""

from importlib.util import find_spec
from pathlib import Path

from dtype_drift import EXACT, scored, table
from gpu.inputs import generative
from gpu.section import Section

from evaluator_serving.checks.verify import TOLERANCE


def run(section: Section, scratch: Path) -> None:
    """All ways on the demo sentences."""
    ways = {
        EXACT: ("transformers", "float64"),
        "float32": ("transformers", "float32"),
        "bfloat16": ("transformers", "bfloat16"),
    }
    if section.device == "cuda" and find_spec("vllm"):
        ways["vllm bfloat16"] = ("vllm", "bfloat16")
    with section.part("g_s of gest-demo") as part:
        source = generative(scratch, small=section.small)
        found = scored(source.path, ways, scratch / "runs", "gest-demo", device=section.device)
        for name, one in found.items():
            limit = TOLERANCE[ways[name][1]]
            part.check(f"{name}: largest |Δ log P| from float64", one["largest_difference"]["log_p"]["largest"], limit)
        part.measured(dtypes=found, table=table(found).splitlines())
