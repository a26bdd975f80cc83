"""The HTML report of 60 models × 4 templates × 3,565 sentences: time, size, and checks in a browser.

    npm install --prefix /tmp/browser playwright-core axe-core
    python benchmarks/report_page.py --browser /tmp/browser [--chromium /usr/bin/chromium] [--pictures DIR] [--json FILE] [RUN…]

Scores are synthetic; models have sizes, families, tuned versions and checkpoints. Reports of given RUNs are checked too. A
headless Chromium without network opens each page at 1280 and 400 pixels, light and dark, and measures loading and drawing
times, console messages, labels that are cut off or overlap, and findings of the accessibility checker axe; it also takes
pictures. Without --browser only time and size are measured. Exit code 1 beyond 15 MB or 3 s, and for any message, label or
finding.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from output import benchmark_parser, write_record

from evaluator.reports import html
from evaluator.reports.report import build_report
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import MeasureOptions, Samples

MODELS, TEMPLATES, SENTENCES, GROUPS = 60, 4, 3565, 16
FAMILIES = ("ant", "bee", "cicada", "dragonfly", "earwig", "firefly")
LARGEST, SLOWEST = 15e6, 3.0
"""Bytes of a page, seconds until it is open."""


def synthetic(folder: Path, models: int = MODELS, sentences: int = SENTENCES) -> tuple[Path, Path]:
    """A run of made-up scores and a table of its models' facts; returns their paths."""
    random = np.random.default_rng(0)
    gest = task("gest")
    run = Run.create_or_open(folder / "synthetic", protocol="default", provenance={})
    entry = task_entry(gest, Samples(pl.DataFrame({"sample": range(sentences)}), {}))
    group = np.arange(sentences) % GROUPS + 1
    lines = ["model,parameters,family,base,tuned,series,step"]
    inclination = random.normal(0, 0.25, GROUPS) + np.where(np.arange(GROUPS) < 7, -0.1, 0.1)
    for index in range(models):
        family, size, tuned = FAMILIES[index % 6], 10 ** (7.8 + index // 12 * 0.7 + index % 6 * 0.05), index // 6 % 2 == 1
        base = f"{family}-labs/{family}-large-language-model-{size:.3g}"
        name = f"{base}-instruct" if tuned else base
        series, step = (f"{family} training", (index // 6 + 1) * 1000) if family == "ant" else ("", "")
        lines.append(f"{name},{size:.4g},{family},{base if tuned else ''},{'yes' if tuned else 'no'},{series},{step}")
        strength = 0.3 + index / models + (0.3 if tuned else 0)
        own = random.normal(0, 0.1, GROUPS)
        frames = []
        for template in range(1, TEMPLATES + 1):
            level = random.normal(0, 0.5)
            score = level + strength * inclination[group - 1] + own[group - 1] + random.normal(0, 1, sentences)
            frames.append(
                pl.DataFrame({"sample": np.arange(sentences), "group": group.astype(str), "score": score}).with_columns(
                    language=pl.lit("en"),
                    template=pl.lit(str(template)),
                    logprob_male=pl.lit(-1.5),
                    logprob_female=pl.lit(-2.5),
                    family=pl.col("sample") % 7 == 0,
                )
            )
        run.add_imported(gest.name, entry, name, pl.concat(frames), {"made": "up"})
    table = folder / "models.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf8")
    return run.path, table


def written(run: Path, models: Path | None, page: Path) -> dict[str, Any]:
    """Write a run's report; returns seconds (rates, page) and bytes."""
    opened = Run.open(run)
    begun = time.perf_counter()
    report = build_report(opened, MeasureOptions(protocol=opened.protocol), models=models)
    measured = time.perf_counter()
    page.write_text(html.render(report), encoding="utf8")
    done = time.perf_counter()
    return {"rates_s": round(measured - begun, 2), "page_s": round(done - measured, 2), "bytes": page.stat().st_size}


def opened(page: Path, pictures: Path, chromium: str, browser: Path) -> dict[str, Any]:
    """What a browser says of a page: see report_page.mjs."""
    pictures.mkdir(parents=True, exist_ok=True)
    program = Path(__file__).with_suffix(".mjs")
    command = ["node", str(program), str(page), str(pictures), chromium, str(browser)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def wrong(result: dict[str, Any]) -> list[str]:
    """What crosses a bound, one per line."""
    found = [f"{result['bytes']:,} bytes"] if result["bytes"] > LARGEST else []
    for view in result.get("views", []):
        place = f"{view['scheme']} {view['width']}"
        if view["first_figure_s"] > SLOWEST:
            found.append(f"{place}: open after {view['first_figure_s']:.1f} s")
        for what in ("console", "requests", "clipped", "overlapping"):
            found += [f"{place}: {what}: {said}" for said in view[what]]
        found += [f"{place}: axe: {each['id']}" for each in view["axe"]["violations"]]
        if not view.get("click_chooses", True):
            found.append(f"{place}: a click on a heat map chooses nothing")
        if view["wider_than_screen"] > 0:
            found.append(f"{place}: {view['wider_than_screen']} pixels wider than the screen")
    return found


def main() -> int:
    """Write, open, tell."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--browser", type=Path, help="folder in which npm installed playwright-core and axe-core")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--pictures", type=Path, help="keep pictures and pages here")
    chosen = parser.parse_args()
    results: dict[str, Any] = {}
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = chosen.pictures or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        made = synthetic(Path(temporary))
        for run, table in [made, *((path, None) for path in chosen.runs)]:
            page = place / f"{run.name}.html"
            result = written(run, table, page)
            if chosen.browser:
                modules = chosen.browser / "node_modules"
                result |= opened(page.resolve(), (place / run.name).resolve(), chosen.chromium, modules)
            results[run.name] = result
            lines = wrong(result)
            failed += len(lines)
            said = f"rates {result['rates_s']} s, page {result['page_s']} s, {result['bytes'] / 1e6:.1f} MB"
            print(f"{run.name}: {said}" + "".join(f"\n  {line}" for line in lines))
            for view in result.get("views", []):
                seconds = (
                    f"first figure {view['first_figure_s']:.2f} s, all {view['figures']} after {view['all_figures_s']:.2f} s"
                )
                print(f"  {view['scheme']} {view['width']}: {seconds}")
    if chosen.browser:
        write_record(chosen.json, results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
