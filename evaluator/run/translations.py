"""Score systems' translations: like a run, but what is asked is the gender detector."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import polars as pl

from evaluator.run.driver import Outcome
from evaluator.run.prepare import provenance
from evaluator.run.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks.gest_mt import TranslationFile, file_source, find_translations, gest_mt, score_file

SHOWN = 3
"""Samples that are named where many have no translation."""


def run_translations(spec: RunSpec, folder: Path, languages: Sequence[str]) -> Outcome:
    """Score every system and language found under `folder` into the run `spec.out` (its models and tasks are not used).

    Raises InputError for a folder without translations, a language without rules, or a file that contradicts itself, before
    anything is written. Samples without a translation are recorded as failures.
    """
    task = gest_mt()
    files = find_translations(folder, languages)
    samples = task.load(spec.data)
    scored = [(file, *score_file(samples, file)) for file in files]
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=provenance(spec.command))
    with run.locked():
        for system, group in groupby(scored, key=lambda item: item[0].system):
            items = list(group)
            frame = pl.concat([scores for _, scores, _ in items])
            run.add_imported(task, samples, system, frame, file_source([file for file, _, _ in items], "rules"))
            failures = [(system, "", reason(file, missing)) for file, _, missing in items if missing]
            if failures:
                run.add_failures(failures)
    return Outcome(run, {})


def reason(file: TranslationFile, missing: Sequence[tuple[int, str]]) -> str:
    """What is missing in a file, counted and the first samples named."""
    first = ", ".join(f"sample {sample}: {what}" for sample, what in missing[:SHOWN])
    return f"{file.language}: {len(missing)} samples without a translation ({first}{' …' if len(missing) > SHOWN else ''})"
