"""trackio: one run per model in a group called after the run folder, on this machine or where TRACKIO_SERVER_URL says."""

from typing import Any

import trackio

from evaluator.trackers import RunLog


def send(log: RunLog, project: str) -> None:
    """Log everything to one project."""
    plain: dict[str, Any] = {
        "project": project,
        "group": log.name,
        "embed": False,
        "auto_log_gpu": False,
        "auto_log_cpu": False,
    }
    for model in log.models:
        run = trackio.init(name=model.name, config=dict(model.parameters), **plain)
        run.log(dict(model.rates))
        run.finish()  # type: ignore[no-untyped-call]
    run = trackio.init(name=log.name, **plain)
    for file in log.files:
        run.log_artifact(file, name=file.stem, type="stereotype-evaluation")
    run.finish()  # type: ignore[no-untyped-call]
