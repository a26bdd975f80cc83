"""Accuracy of `evaluator plan` on this machine, after `evaluator bench` has measured two other models.

    python benchmarks/plan_accuracy.py [--samples 240] [--json FILE]

Two models with random weights (25 and 135 million parameters, SmolLM2's tokenizer) are measured on one thread with two engines.
Then four models of other sizes are planned and swept on a local Ray cluster with one worker. Reported are the estimates with
and without measurements, the actual seconds, and the ratios.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from output import benchmark_parser, write_record

from evaluator.demo import demo_model

SHAPES = {"25M": (320, 8), "60M": (448, 16), "90M": (512, 20), "135M": (576, 30)}
"""Hidden size and layers of Llamas with SmolLM2's vocabulary."""
MEASURED = ("25M", "135M")
SWEPT = (("60M", "transformers"), ("60M", "onnx"), ("90M", "onnx"), ("SmolLM2", "transformers"))
LIMIT = 1.5
"""By which factor the plan may be wrong."""


def make_models(folder: Path) -> dict[str, Path]:
    """The demo's model, and random weights in the shapes above with its tokenizer."""
    import torch
    import transformers

    from evaluator_serving.models.resolving import resolve_here

    real = resolve_here(str(demo_model())).path
    made = {"SmolLM2": demo_model()}
    torch.manual_seed(0)
    for name, (width, layers) in SHAPES.items():
        sizes: dict[str, Any] = {
            "hidden_size": width,
            "intermediate_size": 8 * width // 3 // 64 * 64,
            "num_hidden_layers": layers,
        }
        heads: dict[str, Any] = {"num_attention_heads": width // 64, "num_key_value_heads": width // 64}
        config = transformers.LlamaConfig(**sizes, **heads, vocab_size=49_152, tie_word_embeddings=True)
        transformers.LlamaForCausalLM(config).save_pretrained(folder / name)
        transformers.AutoTokenizer.from_pretrained(real).save_pretrained(folder / name)
        made[name] = folder / name
    return made


def evaluator(*arguments: str, environment: dict[str, str]) -> str:
    """What a command of this program prints."""
    command = [sys.executable, "-m", "evaluator", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def planned(sweep: Path, environment: dict[str, str]) -> float:
    """The plan's seconds for one worker on Ray."""
    told: dict[str, Any] = json.loads(
        evaluator("plan", str(sweep), "--ray", "local", "--format", "json", environment=environment)
    )
    return float(told["seconds"])


def main() -> int:
    """Measure, plan, sweep; exit code 1 if the plan is wrong by more than the limit."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--samples", type=int, default=240, help="of the task, for each model of the sweep")
    parser.add_argument("--task", default="gest-demo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = os.environ | {"EVALUATOR_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        models = make_models(folder)
        entries = "\n".join(
            f'[[models]]\nmodel = "{models[name]}"\nname = "{name}-{engine}"\nengine = "{engine}"' for name, engine in SWEPT
        )
        sweep = folder / "sweep.toml"
        head = f'tasks = ["{options.task}"]\nout = "{folder / "run"}"\nlimit = {options.samples}\n'
        sweep.write_text(head + entries + "\n")
        without = planned(sweep, environment)
        for name in MEASURED:
            engines = ["--engine", "transformers,onnx", "--task", options.task, "--samples", "80", "--threads", "1"]
            evaluator("bench", str(models[name]), *engines, environment=environment)
        seconds = planned(sweep, environment)
        evaluator("sweep", str(sweep), "--ray", "local", "--workers", "1", environment=environment)
        run = json.loads((folder / "run" / "run.json").read_text())
    (plan,) = run["plans"]
    ratio = plan["took"] / plan["seconds"]
    record = {
        "models": [f"{name} {engine}" for name, engine in SWEPT],
        "measured": list(MEASURED),
        "samples": options.samples,
        "planned_without_measurements": round(without, 1),
        "planned_before": round(seconds, 1),
        "planned": plan["seconds"],
        "took": plan["took"],
        "took_over_planned": round(ratio, 3),
        "limit": LIMIT,
        "starts": {name: entry.get("starts") for name, entry in run["models"].items()},
    }
    write_record(options.json, record)
    print(json.dumps({key: value for key, value in record.items() if key != "starts"}, indent=1))
    return 0 if 1 / LIMIT <= ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
