"""Answers in words from a transformers model: batches of prompts, padded on the left where the model bears it.

A batch is a matter of speed alone: what is drawn for an answer depends on its own seed, and prompts of different length share
a batch only where the model's first logits are those that each prompt has alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    StoppingCriteria,
    StoppingCriteriaList,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from evaluator_serving.chats import Chat, Reply
from evaluator_serving.checks.padding import TOLERANCE
from evaluator_serving.errors import EngineError
from evaluator_serving.models.config import padding, rotary_turn, window
from evaluator_serving.models.decoding import CUTS, PENALTIES
from evaluator_serving.models.speech import Speech
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.beginnings import Beginnings, beginnings
from evaluator_serving.transformers_engine.watching import counts_places

_TOKENS = {"cpu": 8192, "cuda": 65536}
"""Padded tokens of a batch, the answers' included: each step reads all weights, however many answers grow by it."""

_CACHE = "cache" if "cache" in GenerateDecoderOnlyOutput.__dataclass_fields__ else "past_key_values"
"""What the cache is called: transformers 5.24 renamed it."""

_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
"""What remembers the rows of a batch apart from each other; those derived from them may remember more."""

_CUTS: Mapping[str, Callable[[Any], LogitsProcessor]] = {
    "top_h": TopHLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
    "typical_p": TypicalLogitsWarper,
    "epsilon_cutoff": EpsilonLogitsWarper,
    "eta_cutoff": EtaLogitsWarper,
}

_Wanted = tuple[int, Chat]
"""A row's index and a chat of one answer."""


class Generation:
    """A loaded causal model that answers chats."""

    def __init__(
        self, model: Any, speech: Speech, dtype: str, tokens: int | None = None, asked: Mapping[str, Any] | None = None
    ) -> None:
        """`asked`: settings of the model's authors that are to be applied (see `models.decoding`)."""
        self.model = model
        # transformers fills in from here whatever a call leaves unset.
        model.generation_config = GenerationConfig()
        self._penalties = {name: value for name, value in (asked or {}).items() if name in PENALTIES}
        self._cuts = tuple(_CUTS[name](value) for name, value in (asked or {}).items() if name in CUTS)
        self._speech = speech
        self._tolerance = TOLERANCE[dtype]
        self._tokens = tokens or _TOKENS[model.device.type]
        # Padding in front of a prompt moves its tokens' places: a model that counts these itself can't share a batch so.
        self._pads: bool | None = False if counts_places(model) else None
        self._parts = True
        self._shares = self._pads
        self._turn = rotary_turn(model.config)
        self._window = window(model.config)
        known = padding(model.config)
        self._pad = (*speech.ends, 0)[0] if known is None else known

    def replies(self, rows: Sequence[Row]) -> list[tuple[Reply, ...]]:
        """The replies to every row, in the rows' order. Raises EngineError with the row's index where a logit is NaN."""
        wanted: list[_Wanted] = [(index, one) for index, row in enumerate(rows) if row.chat for one in row.chat.single()]
        said: list[list[Reply]] = [[] for _ in rows]
        found: dict[_Wanted, Reply] = {}
        pending = list(self._batches(rows, wanted))[::-1]
        while pending:
            batch = pending.pop()
            try:
                outputs = self._generate(rows, batch)
            except torch.OutOfMemoryError as error:
                if len(batch) == 1:
                    row = batch[0][0]
                    raise EngineError(f"row {row}: its answer doesn't fit in memory", row, again=True) from error
                torch.cuda.empty_cache()
                half = len(batch) // 2
                pending += [batch[half:], batch[:half]]
                continue
            found |= {one: self._speech.reply(rows[one[0]], ids) for one, ids in zip(batch, outputs, strict=True)}
        for one in wanted:
            said[one[0]].append(found[one])
        return [tuple(replies) for replies in said]

    def _batches(self, rows: Sequence[Row], wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
        """Longest prompts first, those with answers of one length together."""
        order = sorted(wanted, key=lambda one: (-one[1].max_tokens, -len(rows[one[0]].ids), one[0]))
        mixed = self._bears_padding(rows, order)
        batch: list[_Wanted] = []
        for one in order:
            row, first = rows[one[0]], rows[batch[0][0]] if batch else None
            apart = first is not None and batch[0][1].max_tokens != one[1].max_tokens
            other = first is not None and not mixed and len(first.ids) != len(row.ids)
            full = first is not None and (len(batch) + 1) * first.places > self._tokens
            # What may get past the first frequencies would take the others along.
            far = first is not None and self._turn is not None and first.places > self._turn
            # Penalties count the tokens of padding, too.
            penalised = first is not None and bool(self._penalties)
            if apart or other or full or far or penalised:
                yield batch
                batch = []
            batch.append(one)
        if batch:
            yield batch

    def _generate(self, rows: Sequence[Row], batch: Sequence[_Wanted]) -> list[list[int]]:
        """The token ids of every answer of a batch, whatever comes behind its end included.

        Whenever half of the answers have ended the others go on without them.
        """
        most = batch[0][1].max_tokens
        answers: list[list[int]] = [[] for _ in batch]
        drawing = [_Drawing.of(chat) for _, chat in batch]
        going = list(range(len(batch)))
        inputs, cache = self._begun([rows[index].ids for index, _ in batch], most)
        while going:
            width = inputs["input_ids"].shape[1]
            choosing = _Choosing([drawing[at] for at in going], [batch[at][0] for at in going], self._cuts)
            made = self._said(inputs, choosing, most - len(answers[going[0]]), cache)
            for at, ids in zip(going, made.sequences[:, width:].tolist(), strict=True):
                answers[at] += ids
            kept = [n for n, at in enumerate(going) if len(answers[at]) < most and not set(answers[at]) & {*self._speech.ends}]
            going = [going[n] for n in kept]
            if going:
                places = torch.tensor(kept, device=made.sequences.device)
                inputs, cache = self._rest(inputs, made, places), self._part(made, places)
        return answers

    def _said(self, inputs: dict[str, Tensor], choosing: "_Choosing", most: int, cache: Any) -> Any:
        """Go on until all answers have ended or half of them, with what was computed before, if anything."""
        config = GenerationConfig(
            max_new_tokens=most,
            do_sample=False,
            num_beams=1,
            **self._penalties,
            eos_token_id=list(self._speech.ends) or None,
            pad_token_id=self._pad,
            use_cache=True,
        )
        before = self._before(cache)
        half = StoppingCriteriaList([_Half(self._speech.ends)] if self._parts else [])
        with torch.inference_mode():
            return self.model.generate(
                **inputs,
                **before,
                generation_config=config,
                logits_processor=LogitsProcessorList([choosing]),
                stopping_criteria=half,
                return_dict_in_generate=True,
            )

    def _before(self, cache: Any) -> dict[str, Any]:
        """The cache for a call that goes on. Multimodal models keep a batch's position offsets, which are all 0 for text."""
        if cache is None:
            return {}
        for module in self.model.modules():
            if getattr(module, "rope_deltas", None) is not None:
                module.rope_deltas = None
        return {_CACHE: cache}

    @staticmethod
    def _rest(inputs: dict[str, Tensor], made: Any, places: Tensor) -> dict[str, Tensor]:
        """What those at these places of a batch have read and said."""
        said = made.sequences[places]
        mask = inputs["attention_mask"][places]
        more = mask.new_ones(len(places), said.shape[1] - mask.shape[1])
        return {"input_ids": said, "attention_mask": torch.cat([mask, more], dim=1)}

    def _part(self, made: Any, places: Tensor) -> Any:
        """What was computed for those at these places; None where the model remembers otherwise than by keys and values."""
        cache = getattr(made, _CACHE)
        self._parts = isinstance(cache, DynamicCache) and all(type(layer) in _LAYERS for layer in cache.layers)
        if not self._parts:
            return None
        cache.batch_select_indices(places)
        return cache

    def _begun(self, ids: Sequence[tuple[int, ...]], most: int) -> tuple[dict[str, Tensor], Any]:
        """A batch, and what is computed of the beginnings that its prompts share, each once; None where that is nothing.

        `most`: tokens of the longest answer. An attention window counts the padding behind a beginning, too.
        """
        found = beginnings(ids) if self._parts else None
        if found is None or self._width(ids, found) + most > self._window or not self._bears_parts(ids, found, most):
            return self._inputs(ids), None
        return self._behind(ids, found)

    @staticmethod
    def _width(ids: Sequence[tuple[int, ...]], found: Beginnings) -> int:
        """Tokens of a row whose prompt is padded in two parts."""
        return max(map(len, found.texts)) + max(len(one) - found.length(at) for at, one in enumerate(ids))

    def _behind(self, ids: Sequence[tuple[int, ...]], found: Beginnings) -> tuple[dict[str, Tensor], Any]:
        """A batch with padding before its beginnings, and between them and what follows on them."""
        made = self._step(self._inputs(found.texts), None)
        cache = self._part(made, torch.tensor(found.of, device=made.sequences.device))
        if cache is None:
            return self._inputs(ids), None
        halves = [(one[: found.length(at)], one[found.length(at) :]) for at, one in enumerate(ids)]
        first, second = (self._inputs([half[side] for half in halves]) for side in (0, 1))
        return {name: torch.cat([first[name], second[name]], dim=1) for name in first}, cache

    def _bears_parts(self, ids: Sequence[tuple[int, ...]], found: Beginnings, most: int) -> bool:
        """Whether prompts in two parts are answered as they are in one; found out once, by the shortest and the longest."""
        if self._shares is None:
            ends = sorted(range(len(ids)), key=lambda at: len(ids[at]))[:: max(1, len(ids) - 1)]
            apart = Beginnings(tuple(found.texts[found.of[at]] for at in ends), tuple(range(len(ends))))
            self._shares = all(
                self._same(some, self._first(*self._behind(some, apart))) for some in _grown([ids[at] for at in ends], most)
            )
        return self._shares

    def _same(self, ids: Sequence[tuple[int, ...]], together: Tensor) -> bool:
        """Whether these numbers of some prompts, [prompts, vocabulary], are those that each of them has alone."""
        alone = torch.cat([self._first(self._inputs([one])) for one in ids])
        return bool((together - alone).abs().max() <= self._tolerance)

    def _inputs(self, ids: Sequence[tuple[int, ...]]) -> dict[str, Tensor]:
        width = max(map(len, ids))
        padded = [[*(self._pad,) * (width - len(one)), *one] for one in ids]
        mask = [[*(0,) * (width - len(one)), *(1,) * len(one)] for one in ids]
        device = self.model.device
        return {"input_ids": torch.tensor(padded, device=device), "attention_mask": torch.tensor(mask, device=device)}

    def _bears_padding(self, rows: Sequence[Row], order: Sequence[_Wanted]) -> bool:
        """Whether the shortest prompt beside the longest one is answered as it is alone; found out once."""
        lengths = {len(rows[index].ids): rows[index].ids for index, _ in order}
        if self._pads is None and len(lengths) > 1:
            some = [lengths[max(lengths)], lengths[min(lengths)]]
            most = max(chat.max_tokens for _, chat in order)
            self._pads = all(self._same(ids[1:], self._first(self._inputs(ids))[1:]) for ids in _grown(some, most))
        return self._pads is not False

    def _first(self, inputs: dict[str, Tensor], cache: Any = None) -> Tensor:
        """log P of every first token, [prompts, vocabulary], by the very steps that answers are made with."""
        return torch.log_softmax(self._step(inputs, cache).logits[0].double(), dim=-1)

    def _step(self, inputs: dict[str, Tensor], cache: Any) -> Any:
        """One token more, with its logits."""
        config = GenerationConfig(max_new_tokens=1, do_sample=False, num_beams=1, pad_token_id=self._pad, use_cache=True)
        with torch.inference_mode():
            return self.model.generate(
                **inputs,
                **self._before(cache),
                generation_config=config,
                output_logits=True,
                return_dict_in_generate=True,
            )


def _grown(ids: Sequence[tuple[int, ...]], most: int) -> tuple[Sequence[tuple[int, ...]], ...]:
    """Prompts as they are, and as long as they are with their answers: a window or a chunk may end between the two."""
    return ids, [(*one, *islice(cycle(one), most)) for one in ids]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """How an answer's tokens are drawn: its temperature, and the state of its dice."""

    temperature: float
    dice: torch.Generator

    @classmethod
    def of(cls, chat: Chat) -> "_Drawing | None":
        """A chat's, None for one that gets the most probable token each time."""
        return cls(chat.temperature, torch.Generator().manual_seed(chat.seed)) if chat.temperature else None


class _Choosing(LogitsProcessor):
    """Leaves one token to greedy decoding: the most probable one, or for a chat with a temperature the one that it draws."""

    def __init__(self, drawing: Sequence[_Drawing | None], rows: Sequence[int], cuts: Sequence[LogitsProcessor] = ()) -> None:
        self._rows = rows
        self._cuts = cuts
        self._drawing = {at: one for at, one in enumerate(drawing) if one is not None}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        good = torch.isfinite(scores.amax(dim=-1)).tolist()
        if not all(good):
            row = self._rows[good.index(False)]
            raise EngineError(f"row {row}: the model's logits are NaN or infinite", row)
        for at, one in self._drawing.items():
            logits = scores[at : at + 1].double().cpu() / one.temperature
            for cut in self._cuts:
                logits = cut(input_ids[at : at + 1].cpu(), logits)
            token = int(torch.multinomial(torch.softmax(logits[0], dim=-1), 1, generator=one.dice))
            scores[at] = float("-inf")
            scores[at, token] = 0.0
        return scores


class _Half(StoppingCriteria):
    """Stops a batch when half of its answers have ended: what is computed for these is for nothing."""

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = ends
        self._ended: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Any, **options: Any) -> Tensor:
        now = torch.isin(input_ids[:, -1], torch.tensor(self._ends, device=input_ids.device, dtype=input_ids.dtype))
        self._ended = now if self._ended is None else self._ended | now
        return torch.full_like(self._ended, 2 * int(self._ended.sum()) >= len(self._ended))
