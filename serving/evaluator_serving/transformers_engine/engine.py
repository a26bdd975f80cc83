"""The transformers engine: any model that transformers can load, on CPU or CUDA.

It is the oracle that every other engine is checked against.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from evaluator_serving.batching import batches, narrow, parted, prefix_batches
from evaluator_serving.chats import AnswerStore, Reply
from evaluator_serving.checks.padding import PaddingCheck, find_mates
from evaluator_serving.engine import DECODING, Engine, EngineOptions, Spread
from evaluator_serving.errors import EngineError, InputError, first_line
from evaluator_serving.models.config import rotary_turn
from evaluator_serving.models.decoding import OPTION, recommended
from evaluator_serving.models.heads import is_multimodal
from evaluator_serving.models.loading import DTYPES, load
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.speech import Speech
from evaluator_serving.rows import Head, Row, Workload
from evaluator_serving.transformers_engine.forward import Forward, Numbers
from evaluator_serving.transformers_engine.generation import Generation

_TOKENS = {"cpu": 256, "cuda": 16384}
"""Padded tokens of a batch. On a CPU small batches stay in the cache and little is padding."""

_FOLDED_TOKENS = {"cpu": 512, "cuda": 16384}
"""The same where attention folds: there is no padding, and more rows a product cost less each."""

_LOGIT_BYTES = {"cpu": 128 << 20, "cuda": 2 << 30}
"""Most memory of a batch's logits."""


class TransformersEngine(Engine):
    """Scores rows with transformers models, one for each head that the rows ask for."""

    name = "transformers"
    summary = "all models that transformers loads; the reference for the other engines"
    heads = frozenset[Head]({"masked", "causal", "seq2seq", "pair", "chat"})
    dtypes = tuple(DTYPES)
    spread: ClassVar[Spread] = "layers"
    extra = (DECODING,)
    packages = ("torch", "transformers", "tokenizers")
    start_seconds: ClassVar[Mapping[str, float]] = {"cuda": 8.0, "cpu": 2.0}

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        """Load the heads that `rows` need. Raises InputError for options it has no use for and for unusable weights."""
        heads = frozenset(row.head for row in rows)
        self.check(source, options, heads)
        self.check_here(options, heads)
        self._source = source
        self._dtype_name = options.dtype
        self._dtype = DTYPES[options.dtype]
        self._split = options.dtype == "bf16x2"
        self._device = _device(options.device)
        self.device_kind = "cuda" if self._device.type == "cuda" else "cpu"
        # On a CPU the devices of a replica are threads of one process, with one memory.
        self._spread = options.spread if self._device.type == "cuda" else 1
        self._batch_tokens = options.batch_tokens
        self._asked = OPTION in options.extra
        self._forwards: dict[Head, Forward] = {}
        self._mates: dict[Head, PaddingCheck] = {}
        self._generation: Generation | None = None
        if any(row.chat for row in rows):
            self._speaking()
        for head, some in _by_head(rows).items():
            self._forward(head, [rows[i] for i in some])

    @classmethod
    def check_here(cls, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError as any engine does, and for what is no device of this one."""
        super().check_here(options, heads)
        if _device(options.device).type == "cuda" and options.dtype == "bf16x2":
            raise InputError("dtype bf16x2 is for CPUs: use float32 or bfloat16 on a GPU, or --device cpu")

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """What is left to nobody else."""
        return 1

    def details(self) -> dict[str, Any]:
        """The device's name; `padding`: head → which rows may share a batch, where a row's numbers depend on the others;
        `linear_layers`: head → how they are multiplied, on CPUs in bfloat16 and bf16x2."""
        on_gpu = self._device.type == "cuda"
        padding = {head: found.facts for head, found in self._mates.items() if found.mates != "any"}
        device = torch.cuda.get_device_name(self._device) if on_gpu else "cpu"
        ways = {head: forward.products for head, forward in self._forwards.items() if "bf" in self._dtype_name and not on_gpu}
        return {
            "device": device,
            **({"padding": padding} if padding else {}),
            **({"linear_layers": ways} if ways else {}),
        }

    def score(self, rows: Sequence[Row]) -> list[Numbers]:
        """Log-probabilities (float32, float64 if that is the dtype) of every row's lookups, in the rows' order.

        Raises EngineError with the row's index where a logit is NaN or infinite, or where one row alone is too much for
        the memory.
        """
        answers: list[Numbers] = [np.zeros(len(row.lookups), dtype=self._precision) for row in rows]
        for head, members in _by_head(rows).items():
            forward = self._forward(head, [rows[i] for i in members])
            reads = max(1, _LOGIT_BYTES[self._device.type] // (forward.vocabulary * self._dtype.itemsize))
            parts = [(i, part, which) for i in members for part, which in narrow(rows[i], reads)]
            pending = self._batches(forward, [part for _, part, _ in parts], reads)[::-1]
            while pending:
                batch = pending.pop()
                try:
                    numbers = self._score_batch(forward, [parts[b] for b in batch])
                except RuntimeError as error:
                    if not _out_of_memory(error):
                        raise
                    if len(batch) == 1:
                        row = parts[batch[0]][0]
                        raise EngineError(
                            f"row {row}: {rows[row].length} tokens don't fit in memory", row, again=True
                        ) from error
                    if self._device.type == "cuda":
                        torch.cuda.empty_cache()
                    half = len(batch) // 2
                    pending += [batch[half:], batch[:half]]
                    continue
                for b, values in zip(batch, numbers, strict=True):
                    row, _, which = parts[b]
                    answers[row][list(which)] = values
        return answers

    def generate(self, rows: Sequence[Row], kept: AnswerStore | None = None) -> list[tuple[Reply, ...]]:
        """What the model says to `chat` rows, in batches with padding on the left. Raises EngineError as `score` does."""
        return self._speaking().replies(rows)

    def _speaking(self) -> Generation:
        """The model as one that generates: the causal head's, where that is loaded."""
        if self._generation is None:
            forward = self._forwards.get("causal")
            model = forward.model if forward else load(self._source, "causal", self._dtype, self._device, self._spread)
            asked = recommended(self._source) if self._asked else None
            self._generation = Generation(model, Speech.of(self._source), self._dtype_name, self._batch_tokens, asked)
        return self._generation

    def fall_back(self) -> bool:
        """Multiply in float32 what was multiplied in bfloat16 (bf16x2); says whether anything was."""
        split, self._split = self._split, False
        for forward in self._forwards.values() if split else ():
            forward.lay_out(split=False)
        return split

    def close(self) -> None:
        """Free the models; the engine isn't used again."""
        self._forwards.clear()
        self._generation = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def _precision(self) -> type[np.floating]:
        return np.float64 if self._dtype == torch.float64 else np.float32

    def _batches(self, forward: Forward, rows: Sequence[Row], reads: int) -> list[tuple[int, ...]]:
        tokens = self._batch_tokens or (_FOLDED_TOKENS if forward.folds else _TOKENS)[self._device.type]
        cut: list[tuple[int, ...]] = []
        for part in parted(rows, rotary_turn(self._source.config)):
            some = [rows[i] for i in part]
            if forward.packs:
                made = prefix_batches(some, tokens=tokens, reads=reads)
            else:
                made = batches(some, tokens=tokens, reads=reads, mates=self._mates[forward.head].mates)
            cut += [tuple(part[i] for i in batch) for batch in made]
        return cut

    def _forward(self, head: Head, rows: Sequence[Row]) -> Forward:
        """The forward pass of a head, loaded when it is first needed and checked on some of the rows."""
        if head not in self._forwards:
            loaded = self._generation.model if self._generation and head == "causal" else None
            model = loaded or load(self._source, head, self._dtype, self._device, self._spread)
            try:
                forward = _checked(model, head, rows, split=self._split, live=self._source.module is not None)
                self._mates[head] = self._find_mates(forward, rows)
            except InputError as error:
                raise InputError(f"model {self._source.spec}: {error}") from error
            except Exception as error:  # whatever a model raises that doesn't bear such rows or this dtype
                if isinstance(error, RuntimeError) and _out_of_memory(error):
                    raise
                multimodal = is_multimodal(self._source.config)
                alone = " (text without an image or audio)" if multimodal else ""
                raise InputError(
                    f"model {self._source.spec}: its forward pass fails on this run's rows{alone} in {self._dtype_name} "
                    f"({first_line(error)}): choose {'a text model' if multimodal else 'another model'} or another --dtype"
                ) from error
            self._forwards[head] = forward
        return self._forwards[head]

    def _find_mates(self, forward: Forward, rows: Sequence[Row]) -> PaddingCheck:
        """Which rows may share a batch; a model whose numbers change in a tree of rows is tried without."""

        # Rows on either side of the turn never share a batch (`parted`).
        most = min(self._source.context, rotary_turn(self._source.config) or self._source.context)

        def find() -> PaddingCheck:
            return find_mates(forward.numbers, rows, most, self._dtype_name)

        found = find()
        if forward.packs and found.mates != "any":
            forward.packs = False
            found = find()
        # A choice among equal scores depends on how many there are: padding may count where the probes didn't show it.
        return PaddingCheck("equal", None) if forward.chooses and found.mates == "any" else found

    def _score_batch(self, forward: Forward, parts: Sequence[tuple[int, Row, tuple[int, ...]]]) -> list[Numbers]:
        """The numbers of one batch's rows; `parts` name each one's index in the caller's rows for error messages."""
        rows = [row for _, row, _ in parts]
        numbers = forward.numbers(rows)
        if not all(np.isfinite(values).all() for values in numbers):
            # A NaN spreads to rows that share a tree or padding with it: alone, only the row at fault has it.
            numbers = [forward.numbers([row])[0] for row in rows]
        for (row_index, _, _), values in zip(parts, numbers, strict=True):
            if not np.isfinite(values).all():
                raise EngineError(f"row {row_index}: the model's logits are NaN or infinite", row_index)
        return numbers


def _by_head(rows: Sequence[Row]) -> dict[Head, list[int]]:
    """Indices of the rows that read anything, by head."""
    members: dict[Head, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if row.lookups:
            members[row.head].append(i)
    return members


def _checked(model: Any, head: Head, rows: Sequence[Row], *, split: bool, live: bool) -> Forward:
    """A model's forward pass, checked on the shortest of `rows` and on one as long as the longest, if that fits in memory."""
    shortest, longest = (choose(rows, key=lambda row: len(row.ids)) for choose in (min, max))
    forward = Forward(model, head, live=live)
    try:
        forward.check([shortest, longest], split=split)
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        forward = Forward(model, head, live=live)
        forward.check([shortest], split=split)
    return forward


def _device(name: str) -> torch.device:
    """The device called `name`; `auto` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:1") from error
    if device.type not in _TOKENS:
        raise InputError(f"the transformers engine doesn't run on {name!r}: use auto, cpu or cuda")
    return device


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
