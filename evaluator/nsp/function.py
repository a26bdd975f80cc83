"""A next-sentence classifier out of a generative model (`evaluator train-nsp`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from evaluator.nsp.train import TrainingResult, default_settings, train
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve_here


def train_nsp(
    model: str,
    corpus: Sequence[Path],
    out: Path,
    *,
    protocol: Literal["default", "published"] = "default",
    language: str = "en",
    pairs: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    length: int | None = None,
    core_rate: float | None = None,
    head_rate: float | None = None,
    warmup: float | None = None,
    held_out: float | None = None,
    prefix: str | None = None,
    seed: int | None = None,
    precision: str | None = None,
    allow_pickle: bool = False,
    device: str = "auto",
    every: int = 500,
    report: Callable[[str], None] = print,
) -> TrainingResult:
    """Fine-tune a causal or an encoder-decoder language model to tell consecutive sentences from random ones.

    The same call resumes an interrupted training. Options from `pairs` to `precision` are those of
    `evaluator.nsp.train.TrainingOptions`; None: the papers' value for this kind of model.

    Args:
        corpus: files or folders of articles.
        out: folder of the trained classifier.
        language: language of T5's published training prefix.
        prefix: text in front of every pair, in training and afterwards.
        every: steps between two checkpoints.
        report: called with a line on the progress.

    Raises InputError for a model of another kind, and for a corpus without pairs.
    """
    source = resolve_here(model, allow_pickle=allow_pickle)
    if not source.heads & {"causal", "seq2seq"}:
        raise InputError(f"model {model} is neither a causal nor an encoder-decoder language model: it can't be trained")
    choices: dict[str, Any] = {
        "pairs": pairs,
        "epochs": epochs,
        "batch": batch,
        "accumulate": accumulate,
        "length": length,
        "core_rate": core_rate,
        "head_rate": head_rate,
        "warmup": warmup,
        "held_out": held_out,
        "prefix": prefix,
        "train_prefix": prefix,
        "seed": seed,
        "precision": precision,
    }
    settings = default_settings(source.config, published=protocol == "published", language=language)
    settings = replace(settings, **{name: value for name, value in choices.items() if value is not None})
    return train(source, corpus, settings, out, device=device, every=every, report=report)
