"""Time that the program itself takes, beside the engines: in the driver, one process on one core, and in each worker.

Encoding is not among it: it is done before a sweep's first replica starts.
"""

from dataclasses import dataclass

from evaluator.scoring.commits import SECONDS


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Seconds of CPU.

    Attributes:
        request: of the driver, to cut a request into a chunk, send it and store its answer.
        model: of the driver, to start a model and to record how it ended.
        commit: of the driver, to write what a model has answered since the last commit; every: seconds between commits.
        worker: of a worker, to make a request's rows and to assemble its answer, while its device waits.
    """

    request: float
    model: float
    commit: float
    worker: float
    every: float = SECONDS

    def driver(self, requests: int, models: int) -> float:
        """Of the driver for this many requests of all models together, without commits."""
        return self.request * requests + self.model * models

    def free(self, active: int) -> float:
        """The part of the driver's time that commits leave, while so many models are scored."""
        return max(0.1, 1 - self.commit * active / self.every)


PROGRAM_TIME = ProgramTime(request=1.6e-5, model=0.4, commit=0.02, worker=5e-5)
"""Measured with an engine that answers at once, on a shared two-core machine that had much other work
(`benchmarks/driver_throughput.py`). `request`: 12 models with one tokenizer on GEST, all of the driver (EuroGEST: 3.3 µs to
cut, 2.7 to 9.6 to send in large or small chunks, 1.4 to store). `model`: EuroGEST's 4.5 µs a request for sample rows, and
run.json. `worker`: EuroGEST, whose requests are larger. `commit`: writing 1,000 answers, of which its fsync is most."""
