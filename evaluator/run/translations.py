"""Score systems' translations: like a run, but what is asked is the gender detector."""

from collections.abc import Sequence
from pathlib import Path

from evaluator.run.driver import Outcome
from evaluator.run.failures import Failures
from evaluator.run.prepare import provenance
from evaluator.run.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks.gest_mt import TranslationFile, file_source, find_translations, gest_mt, score_file
from evaluator.tasks.stored import task_entry
from evaluator_serving.errors import InputError

SHOWN = 3
"""Samples that are named where many have no translation."""


def run_translations(spec: RunSpec, folder: Path, languages: Sequence[str]) -> Outcome:
    """Score every system and language found under `folder` into the run `spec.out` (its models and tasks are not used).

    Raises InputError for a folder without translations, a language without rules, or a file that contradicts itself, before
    anything is written. Samples without a translation are recorded as failures. What the run has of other systems and
    languages stays; a language that is given again replaces its own results, hash and failures.
    """
    if spec.limit is not None:
        raise InputError("gest-mt reads whole translations: leave --limit out")
    task = gest_mt()
    files = find_translations(folder, languages)
    samples = task.load(spec.data)
    scored = [(file, *score_file(samples, file)) for file in files]
    attempt = provenance(spec.command)
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt)
    with run.locked():
        run.add_attempt(attempt)
        for file, scores, missing in scored:
            failures = [reason(file, missing)] if missing else []
            source = file_source(file, "rules")
            run.add_imported(
                task.name, task_entry(task, samples), file.system, scores, source, part=file.language, failures=failures
            )
    return Outcome(run, Failures())


def reason(file: TranslationFile, missing: Sequence[tuple[int, str]]) -> str:
    """What is missing in a file, counted and the first samples named."""
    first = ", ".join(f"sample {sample}: {what}" for sample, what in missing[:SHOWN])
    return f"{file.language}: {len(missing)} samples without a translation ({first}{' …' if len(missing) > SHOWN else ''})"
