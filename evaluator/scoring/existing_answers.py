"""Tasks that ask no model: answers that exist already (a system's translations) are read and scored into a run."""

from evaluator.scoring.driver import Outcome
from evaluator.scoring.failures import Failures
from evaluator.scoring.record import provenance
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks.stored import checked, task_entry
from evaluator_serving.errors import InputError


def score_given(spec: RunSpec) -> Outcome:
    """Score what is given to the tasks of `spec` into its run (its models aren't used).

    Raises InputError for answers that are missing or wrong before anything is written. What has no answer is recorded as
    failures. What the run has of other systems and parts stays; a part that is given again replaces its own results, hash and
    failures.
    """
    done = []
    for task in spec.tasks:
        if spec.limit is not None:
            raise InputError(f"{task.name} reads whole files of answers: leave --limit out")
        samples = task.load(spec.data)
        parts = task.given(samples)
        table = task.render(samples, frozenset(), spec.protocol).table
        done.append((task, samples, [(part, checked(task, task.score(table, part.answers, spec.protocol))) for part in parts]))
    attempt = provenance(spec.command)
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt)
    with run.locked():
        run.add_attempt(attempt)
        for task, samples, scored in done:
            entry = task_entry(task, samples)
            for part, scores in scored:
                run.add_imported(
                    task.name,
                    entry,
                    part.system,
                    scores,
                    dict(part.source),
                    part=part.part,
                    failures=part.failures,
                    left_out=part.left_out,
                )
    systems = dict.fromkeys(part.system for _, _, scored in done for part, _ in scored)
    return Outcome(run, Failures(), tuple(systems))
