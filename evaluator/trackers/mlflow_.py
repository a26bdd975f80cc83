"""MLflow: a run of the tracking server (MLFLOW_TRACKING_URI) for the evaluation, with a nested run a model."""

import os
import re
import time

from evaluator.trackers import RunLog

LONGEST = 6000
"""Characters of a parameter's value; MLflow takes no more."""
MOST = 900
"""Metrics of a request; MLflow takes no more than 1,000."""


def send(log: RunLog, project: str) -> None:
    """Log everything to one experiment."""
    # The client's own defaults try a dead server for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient()
    found = client.get_experiment_by_name(project)
    experiment = found.experiment_id if found else client.create_experiment(project)
    parent = client.create_run(experiment, run_name=log.name).info.run_id
    for model in log.models:
        run = client.create_run(experiment, run_name=model.name, tags={"mlflow.parentRunId": parent}).info.run_id
        client.log_batch(run, params=[Param(_name(key), value[:LONGEST]) for key, value in model.parameters.items()])
        now = int(time.time() * 1000)
        metrics = [Metric(_name(key), value, now, 0) for key, value in model.rates.items()]
        for begin in range(0, len(metrics), MOST):
            client.log_batch(run, metrics=metrics[begin : begin + MOST])
        client.set_terminated(run)
    for file in log.files:
        client.log_artifact(parent, str(file))
    client.set_terminated(parent)


def _name(key: str) -> str:
    """With the characters that MLflow allows in names."""
    return re.sub(r"[^\w\-. /:]", "_", key)
