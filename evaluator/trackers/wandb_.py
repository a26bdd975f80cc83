"""Weights & Biases: one run per model in a group called after the run folder; with WANDB_MODE=offline below WANDB_DIR."""

import wandb

from evaluator.trackers import RunLog


def send(log: RunLog, project: str) -> None:
    """Log everything to one project."""
    settings = wandb.Settings(silent=True, init_timeout=30, x_disable_stats=True, console="off")
    for model in log.models:
        run = wandb.init(project=project, group=log.name, name=model.name, config=dict(model.parameters), settings=settings)
        run.log(dict(model.rates))
        run.finish()
    run = wandb.init(project=project, group=log.name, name=log.name, job_type="record", settings=settings)
    record = wandb.Artifact("".join(c if c.isalnum() or c in "-_." else "-" for c in log.name), type="stereotype-evaluation")
    for file in log.files:
        record.add_file(str(file))
    run.log_artifact(record)
    run.log({file.stem: wandb.Image(str(file)) for file in log.files if file.suffix == ".png"})
    run.finish()
