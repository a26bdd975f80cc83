"""Fine-tune a next-sentence classifier, with checkpoints from which an interrupted training resumes."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, get_cosine_with_hard_restarts_schedule_with_warmup

from evaluator.nsp.corpus import SentencePairs, articles, sentences
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.classifiers import CausalForNextSentence, Classifier, Seq2SeqForNextSentence, build, save
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.next_sentence import NextSentence
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import FILE, SENTENCES, load_tokenizer
from evaluator_serving.requests import Pair
from evaluator_serving.rows import GREEDY

ENGLISH_PREFIX = "binary classification: "
PUBLISHED_PREFIXES = {
    "de": "binäre Klassifikation: ",
    "fr": "classification binaire: ",
    "es": "clasificación binaria: ",
}
"""Language → prefix of the published T5 training. The published inference used the English prefix for all languages."""

_EVALUATED = 2000
_CLIP = 1.0
_RESTARTS = 1


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of a training.

    Attributes:
        pairs, epochs: maximum number of training pairs, and of passes over the corpus; the first limit reached ends training.
        batch, accumulate: pairs per forward pass, and forward passes per optimizer step.
        length: maximum tokens of a pair; the longer text is truncated.
        core_rate, head_rate: peak learning rates of the language model and of the head (causal models only).
        warmup: share of the steps during which the learning rate rises.
        held_out: share of the articles used for the accuracy only.
        train_prefix, prefix: prefix of a pair during training and afterwards; different only in the published protocol.
        pool_padding: causal models: mean pooling includes padding during training (published protocol).
        released_targets: encoder-decoder models: train on a label's last token without end token, and read it after the
            first token that the decoder generates (published protocol).
        precision: `float32`, or `bfloat16` for mixed precision.
    """

    pairs: int = 1_000_000
    epochs: int = 1
    batch: int = 4
    accumulate: int = 16
    length: int = 256
    core_rate: float = 5e-6
    head_rate: float = 1e-3
    warmup: float = 0.01
    held_out: float = 0.02
    seed: int = 0
    train_prefix: str = ""
    prefix: str = ""
    pool_padding: bool = False
    released_targets: bool = False
    precision: str = "float32"


def default_settings(config: Any, *, published: bool = False, language: str = "en") -> TrainingOptions:
    """The defaults of method.md §2 for a model with this configuration."""
    if not config.is_encoder_decoder:
        return TrainingOptions(pool_padding=published)
    if config.model_type != "t5":
        return TrainingOptions(batch=8, accumulate=8, core_rate=1e-4, released_targets=published)
    trained = PUBLISHED_PREFIXES.get(language, ENGLISH_PREFIX) if published else ENGLISH_PREFIX
    return TrainingOptions(batch=24, accumulate=3, train_prefix=trained, prefix=ENGLISH_PREFIX, released_targets=published)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Result of a training; `accuracy` on held-out pairs is None if the corpus is too small to hold any out."""

    steps: int
    pairs: int
    accuracy: float | None
    loss: float


def read_pairs(paths: Sequence[Path], settings: TrainingOptions) -> tuple[SentencePairs, SentencePairs | None]:
    """Training and held-out pairs of a corpus, split by article."""
    corpus = [split for text in articles(paths) if len(split := sentences(text)) > 1]
    count = round(settings.held_out * len(corpus))
    if settings.held_out > 0 and len(corpus) >= 4:
        count = max(count, 2)
    order = np.random.default_rng([settings.seed, len(corpus)]).permutation(len(corpus)).tolist()
    held_out = SentencePairs.of([corpus[i] for i in order[:count]]) if count >= 2 else None
    return SentencePairs.of([corpus[i] for i in order[count:]]), held_out


def train(
    source: ModelSource,
    corpus: Sequence[Path],
    settings: TrainingOptions,
    out: Path,
    *,
    device: str = "auto",
    every: int = 500,
    report: Callable[[str], None] = print,
) -> TrainingResult:
    """Train a classifier from `source` into the folder `out`. The same call resumes an interrupted training.

    A checkpoint is written to the folder `out`.partial every `every` steps, and removed at the end. A resumed training gives
    the same weights as an uninterrupted one. Raises InputError for an invalid model, corpus or `out`.
    """
    record = out / "training.json"
    if record.is_file():
        finished = json.loads(record.read_text("utf8"))
        _check_fingerprint(out, finished["settings"], _fingerprint(settings, source, read_pairs(corpus, settings)[0]))
        report(f"{out} is already finished")
        return TrainingResult(**finished["result"])
    if out.exists():
        raise InputError(f"{out} exists and is not a finished training: use another --out folder")
    trainer = Trainer(source, corpus, settings, device)
    partial = out.with_name(out.name + ".partial")
    fingerprint = _fingerprint(settings, source, trainer.pairs)
    step = _restore(trainer, partial, fingerprint)
    if step:
        report(f"resuming after step {step} of {trainer.steps}")
    losses: list[float] = []
    while step < trainer.steps:
        losses.append(trainer.step(step))
        step += 1
        if step % every == 0 and step < trainer.steps:
            _checkpoint(trainer, partial, fingerprint, step)
        if step % 50 == 0 or step == trainer.steps:
            report(f"step {step} of {trainer.steps}, loss {np.mean(losses[-50:]):.4f}")
    loss = float(np.mean(losses[-50:])) if losses else math.nan
    result = TrainingResult(step, trainer.pair_count, trainer.accuracy(), loss)
    save(trainer.module, trainer.pair_format, trainer.tokenizer, out, {"result": asdict(result), "settings": fingerprint})
    shutil.rmtree(partial, ignore_errors=True)
    return result


class Trainer:
    """Model, data and optimizer of one training."""

    def __init__(self, source: ModelSource, corpus: Sequence[Path], settings: TrainingOptions, device: str) -> None:
        self.settings = settings
        self.pairs, self.held_out_pairs = read_pairs(corpus, settings)
        self.tokenizer = load_tokenizer(source)
        self.tokenizer.padding_side = "right"
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        torch.manual_seed(settings.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else torch.device(device)
        self.pair_format, self.targets = _pair_format(source, self.tokenizer, settings)
        self.module = build(_core(source), self.pair_format).to(self.device).train()
        per_step = settings.batch * settings.accumulate
        self.per_epoch = math.ceil(len(self.pairs) / per_step)
        self.steps = min(math.ceil(settings.pairs / per_step), settings.epochs * self.per_epoch)
        self.optimizer = torch.optim.AdamW(_groups(self.module, settings), weight_decay=0.0)
        self.schedule(0)
        self._epoch = (-1, self.pairs.epoch(settings.seed, 0))

    @property
    def pair_count(self) -> int:
        """Number of pairs in the whole training."""
        full, rest = divmod(self.steps, self.per_epoch)
        return full * len(self.pairs) + rest * self.settings.batch * self.settings.accumulate

    def schedule(self, done: int) -> None:
        """Set the learning-rate schedule to its state after `done` steps."""
        self.scheduler = get_cosine_with_hard_restarts_schedule_with_warmup(
            self.optimizer, math.ceil(self.settings.warmup * self.steps), self.steps, _RESTARTS, last_epoch=done - 1
        )

    def step(self, step: int) -> float:
        """One optimizer step. Returns its mean loss. Raises EngineError if the loss is not finite."""
        epoch, index = divmod(step, self.per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.pairs.epoch(self.settings.seed, epoch))
        per_step = self.settings.batch * self.settings.accumulate
        start, stop = index * per_step, min((index + 1) * per_step, len(self.pairs))
        total = 0.0
        for begin in range(start, stop, self.settings.batch):
            end = min(begin + self.settings.batch, stop)
            first, second, labels = self._epoch[1].batch(begin, end)
            loss = self._loss(first, second, labels) * (end - begin) / (stop - start)
            loss.backward()
            total += loss.item()
        if not math.isfinite(total):
            raise EngineError(f"the loss is {total} at step {step + 1}: lower the learning rates or use --precision float32")
        nn.utils.clip_grad_norm_(self.module.parameters(), _CLIP)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def accuracy(self) -> float | None:
        """Accuracy on the held-out pairs."""
        if self.held_out_pairs is None:
            return None
        epoch = self.held_out_pairs.epoch(self.settings.seed, 0)
        self.module.eval()
        right = 0
        count = min(len(self.held_out_pairs), _EVALUATED)
        with torch.inference_mode():
            for begin in range(0, count, 32):
                first, second, labels = epoch.batch(begin, min(begin + 32, count))
                inputs = self._inputs(first, second, self.settings.prefix)
                answer = self.module(**inputs).logits.argmax(dim=-1)
                right += int((answer.cpu() == torch.tensor(labels)).sum())
        self.module.train()
        return right / count

    def _inputs(self, first: list[str], second: list[str], prefix: str) -> dict[str, Tensor]:
        encoded = self.tokenizer(
            [prefix + text for text in first],
            second,
            truncation="longest_first",
            max_length=self.settings.length,
            padding=True,
            return_tensors="pt",
            split_special_tokens=True,  # names of control tokens in an article are plain text
        )
        return {name: encoded[name].to(self.device) for name in ("input_ids", "attention_mask")}

    def _loss(self, first: list[str], second: list[str], labels: list[int]) -> Tensor:
        inputs = self._inputs(first, second, self.settings.train_prefix)
        mixed = self.settings.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
            if isinstance(self.module, Seq2SeqForNextSentence):
                return self.module.loss(**inputs, targets=self.targets[labels].to(self.device))
            logits = self.module(**inputs, pool_padding=self.settings.pool_padding).logits
            return nn.functional.cross_entropy(logits.float(), torch.tensor(labels, device=self.device))


def _core(source: ModelSource) -> Any:
    factory = AutoModelForSeq2SeqLM if source.config.is_encoder_decoder else AutoModel
    return factory.from_pretrained(source.path, dtype=torch.float32, local_files_only=True, trust_remote_code=False)


def _pair_format(source: ModelSource, tokenizer: Any, settings: TrainingOptions) -> tuple[NextSentence, Tensor]:
    """The classifier's input format, and its target ids [2, length] (empty for causal models)."""
    if not source.config.is_encoder_decoder:
        return NextSentence(settings.prefix), torch.empty(0)
    start = source.config.decoder_start_token_id
    labels = [_label(tokenizer, text) for text in ("0", "1")]
    zero, one = (token for _, token, _ in labels)
    if zero == one:
        raise InputError(f"model {source.spec}: the tokenizer maps the labels 0 and 1 to the same token: use another model")
    if settings.released_targets:
        return NextSentence(settings.prefix, (zero, one), (start, GREEDY)), torch.tensor([[zero], [one]])
    # If the labels differ in length, as with T5, both get the longer one's prefix, so that they are read at the same step.
    front, _, end = max(labels, key=lambda label: len(label[0]))
    targets = torch.tensor([[*front, token, *end] for token in (zero, one)])
    return NextSentence(settings.prefix, (zero, one), (start, *front)), targets


def _label(tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
    """The tokens before a label's last token (a boundary piece), the last token, and the tokens after it (the end token)."""
    pieces = tokenizer(text, add_special_tokens=False).input_ids
    whole = tokenizer(text).input_ids
    last = next(i for i in range(len(whole)) if whole[i : i + len(pieces)] == pieces) + len(pieces) - 1
    return whole[:last], whole[last], whole[last + 1 :]


def _groups(module: Classifier, settings: TrainingOptions) -> list[dict[str, Any]]:
    groups = [{"params": list(module.core.parameters()), "lr": settings.core_rate}]
    if isinstance(module, CausalForNextSentence):
        groups.append({"params": list(module.head.parameters()), "lr": settings.head_rate})
    return groups


def _digest(pairs: SentencePairs) -> str:
    total = hashlib.sha256()
    for text, article in zip(pairs.texts, pairs.article.tolist(), strict=True):
        total.update(f"{article}\0{text}\n".encode())
    return total.hexdigest()


# --- checkpoints --------------------------------------------------------------------------------------------------


def _checkpoint(trainer: Trainer, partial: Path, fingerprint: dict[str, Any], step: int) -> None:
    """Write the training's state atomically, then remove older checkpoints."""
    scratch, folder = partial / ".tmp", partial / f"step-{step:08d}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    save_model(trainer.module, str(scratch / "model.safetensors"))
    state = trainer.optimizer.state_dict()["state"]
    tensors = {f"{index}.{name}": value for index, slots in state.items() for name, value in slots.items()}
    tensors["random"] = torch.get_rng_state()
    if trainer.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(trainer.device)
    save_file(tensors, scratch / "optimizer.safetensors")
    (scratch / "state.json").write_text(json.dumps({"step": step, "settings": fingerprint}), "utf8")
    for file in scratch.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    scratch.rename(folder)
    for older in partial.glob("step-*"):
        if older != folder:
            shutil.rmtree(older)


def _fingerprint(settings: TrainingOptions, source: ModelSource, pairs: SentencePairs) -> dict[str, Any]:
    """Everything that a training's result depends on."""
    tokenizer = with_file_tokens(source, [Pair(*SENTENCES[:2])]).tokenizer
    tokens = {"tokenizer": FILE} if tokenizer and tokenizer.differ else {}
    return {**asdict(settings), "model": source.revision, "corpus": _digest(pairs), **tokens}


def _check_fingerprint(folder: Path, stored: dict[str, Any], fingerprint: dict[str, Any]) -> None:
    """Raise InputError, with the first difference, if a folder's training has another fingerprint."""
    for name, value in fingerprint.items():
        if stored.get(name) != value:
            raise InputError(
                f"{folder} was trained with another {name} ({stored.get(name)!r}, now {value!r}): "
                "use another --out folder or remove it"
            )


def _restore(trainer: Trainer, partial: Path, fingerprint: dict[str, Any]) -> int:
    """Restore the newest checkpoint. Returns its step, 0 if there is none."""
    folders = sorted(partial.glob("step-*"))
    if not folders:
        return 0
    folder = folders[-1]
    stored = json.loads((folder / "state.json").read_text("utf8"))
    _check_fingerprint(partial, stored["settings"], fingerprint)
    load_model(trainer.module, folder / "model.safetensors")
    tensors = load_file(folder / "optimizer.safetensors")
    torch.set_rng_state(tensors.pop("random"))
    if (cuda := tensors.pop("random.cuda", None)) is not None and trainer.device.type == "cuda":
        torch.cuda.set_rng_state(cuda, trainer.device)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    trainer.optimizer.load_state_dict({"state": state, "param_groups": trainer.optimizer.state_dict()["param_groups"]})
    trainer.schedule(stored["step"])
    return int(stored["step"])
