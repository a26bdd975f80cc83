"""Time that the program itself takes, beside the engines: in the driver, one process on one core, and in each worker.

Encoding is not among it: it is done before a sweep's first replica starts.
"""

from dataclasses import dataclass

from evaluator.scoring.commits import SECONDS


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Seconds of CPU.

    Attributes:
        request: of the driver, to send a request in a chunk and to store its answer.
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


PROGRAM_TIME = ProgramTime(request=7e-6, model=0.1, commit=0.005, worker=4e-5)
"""Measured with an engine that answers at once (`benchmarks/driver_throughput.py`).

`request`: EuroGEST on Ray, where 296,904 requests took 2.0 s while models were scored; in this process 4 µs. `worker`:
EuroGEST. `model`: run.json. `commit`: writing 1,000 answers of each of 24 models, of which fsyncs are most.
"""
