"""The independent reference: answers of a model in float64, one sequence at a time, with full logits and no batches.

Beside it the engine's answers, by the way that a run takes.
"""

import difflib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers

from evaluator_serving.answers import Answer, assemble
from evaluator_serving.chunks import chunks, merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Continuation, Masked, Pair, Request, SharedTokens, kind
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine


def engine_answers(source: ModelSource, requests: Sequence[Request], **options: Any) -> list[Answer]:
    """The transformers engine's answers, in the requests' order: encode, chunk, merge, score, assemble."""
    encoder = encoder_for(source)
    encoded = [encoder.encode(request) for request in requests]
    engine = TransformersEngine(source, EngineOptions(**options), merge(encoded).rows)
    found = {
        answer.request: answer
        for chunk in chunks(encoded, tokens=300)
        for answer in assemble(chunk, engine.score(chunk.merged.rows))
    }
    engine.close()
    return [found[item.request] for item in encoded]


class Loop:
    """One model with transformers' own call of its tokenizer."""

    def __init__(self, folder: Path, auto: str) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = (
            getattr(transformers, auto).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        )

        self._log_probs = lru_cache(maxsize=1)(self._computed)

    def log_probs(self, **inputs: list[int]) -> torch.Tensor:
        """log P [length, vocabulary]."""
        return self._log_probs(**{name: tuple(ids) for name, ids in inputs.items()})

    @torch.no_grad()
    def _computed(self, **inputs: tuple[int, ...]) -> torch.Tensor:
        tensors = {name: torch.tensor([ids]) for name, ids in inputs.items()}
        return torch.log_softmax(self.model(**tensors).logits[0], dim=-1)

    def masked(self, request: Masked) -> list[list[float]]:
        if request.method == "positional":
            return self._positional(request)
        return [self._masked(request.parts, fillers, request.method) for fillers in request.candidates]

    def _text(self, parts: Sequence[str], fillers: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
        text, spans = parts[0], []
        for filler, part in zip(fillers, parts[1:], strict=True):
            spans.append((len(text), len(text) + len(filler)))
            text += filler + part
        return text, spans

    def _masked(self, parts: Sequence[str], fillers: Sequence[str], method: str) -> list[float]:
        text, spans = self._text(parts, fillers)
        coded = self.tokenizer(text, return_offsets_mapping=True)
        ids = coded["input_ids"]
        slots = [
            [t for t, (a, b) in enumerate(coded["offset_mapping"]) if a < b and a < end and b > start] for start, end in spans
        ]
        mask = self.tokenizer.mask_token_id
        if method in ("words", "unmasked"):
            return self.every_token(text, method == "words")
        if method == "single":
            numbers = []
            for j, position in enumerate(slots[0]):
                line = []
                for t, token in enumerate(ids):
                    slot = next((slot for slot in slots if t in slot), [])
                    place = slot.index(t) if t in slot else -1
                    if place <= j:
                        line.append(mask if place == j else token)
                numbers.append(float(self.log_probs(input_ids=line)[position, ids[position]]))
            return numbers
        places = sorted(t for slot in slots for t in slot)
        numbers = []
        for j, position in enumerate(places):
            hidden = places if method == "joint" else places[j:]
            line = [mask if t in hidden else token for t, token in enumerate(ids)]
            numbers.append(float(self.log_probs(input_ids=line)[position, ids[position]]))
        return numbers

    def every_token(self, text: str, masked: bool) -> list[float]:
        """Each token of the text's own, at its place; `masked` with the later ones of its word."""
        coded = self.tokenizer(text)
        ids, words = coded["input_ids"], coded.word_ids()
        numbers = []
        for t, word in enumerate(words):
            if word is not None:
                hidden = [u for u in range(t, len(ids)) if words[u] == word] if masked else []
                line = [self.tokenizer.mask_token_id if u in hidden else token for u, token in enumerate(ids)]
                numbers.append(float(self.log_probs(input_ids=line)[t, ids[t]]))
        return numbers

    def _positional(self, request: Masked) -> list[list[float]]:
        first, second = (self.tokenizer(self._text(request.parts, f)[0])["input_ids"] for f in request.candidates)
        both = []
        for own, other in ((first, second), (second, first)):
            line = list(own)
            for t in range(min(len(own), len(other))):
                if own[t] != other[t]:
                    line[t] = self.tokenizer.mask_token_id
            scores = self.log_probs(input_ids=line)
            both.append([float(scores[t, own[t]]) for t in range(len(line)) if line[t] != own[t]])
        return both

    def shared(self, request: SharedTokens) -> list[list[float]]:
        """For these requests the shared tokens are those that the shorter list of common words leaves, found by hand."""
        coded = [self.tokenizer(text, return_special_tokens_mask=True) for text in (request.first, request.second)]
        words = [[t for t, s in enumerate(c["special_tokens_mask"]) if not s] for c in coded]
        ids = [c["input_ids"] for c in coded]
        sequences = [[ids[k][t] for t in words[k]] for k in range(2)]
        equal = [
            (i1 + n, j1 + n)
            for tag, i1, i2, j1, _ in difflib.SequenceMatcher(None, *sequences, autojunk=False).get_opcodes()
            if tag == "equal"
            for n in range(i2 - i1)
        ]
        both = []
        for k in range(2):
            numbers = []
            for match in equal:
                place = words[k][match[k]]
                line = [self.tokenizer.mask_token_id if t == place else token for t, token in enumerate(ids[k])]
                numbers.append(float(self.log_probs(input_ids=line)[place, ids[k][place]]))
            both.append(numbers)
        return both

    def continuation(self, request: Continuation) -> list[list[float]]:
        if request.encoder is not None:
            return [self._decoder(request, candidate) for candidate in request.candidates]
        front = [self.tokenizer.bos_token_id] if self.tokenizer("a")["input_ids"] != self.ids("a") else []
        start = self.tokenizer.bos_token_id
        every = []
        for candidate in request.candidates:
            if request.method == "last_token":
                word = candidate if front == [] else candidate.strip()  # these tokenizers write a space themselves
                line = front + self.ids(request.context)
                every.append([float(self.log_probs(input_ids=line)[-1, self.ids(word)[-1]])])
            elif request.method in ("whole", "difference"):
                own = [self.tokenizer(text)["input_ids"] for text in request.candidates]
                scores = self.log_probs(input_ids=self.tokenizer(candidate)["input_ids"])
                line = self.tokenizer(candidate)["input_ids"]
                numbers = [float(scores[t, line[t + 1]]) for t in range(len(line) - 1)]
                every.append(numbers if request.method == "whole" else numbers[_first_difference(own) :])
            elif request.method == "start_text":
                line = self.tokenizer(candidate)["input_ids"]
                first = [float(self.log_probs(input_ids=self.tokenizer("<|endoftext|>")["input_ids"])[0, line[0]])]
                scores = self.log_probs(input_ids=line)
                every.append(first + [float(scores[t - 1, line[t]]) for t in range(1, len(line))])
            else:
                context, line = front + self.ids(request.context), front + self.ids(request.context + candidate)
                same = _same(context, line)
                if request.method == "together":
                    lines = [front + self.ids(request.context + each) for each in request.candidates]
                    same = min(_same(context, each) for each in lines)
                if same == 0:
                    line, same = [start, *line], 1
                scores = self.log_probs(input_ids=line[:-1])
                every.append([float(scores[t - 1, line[t]]) for t in range(same, len(line))])
        return every

    def _decoder(self, request: Continuation, candidate: str) -> list[float]:
        before = [self.model.config.decoder_start_token_id, *self.ids(request.context)]
        line = [self.model.config.decoder_start_token_id, *self.ids(request.context + candidate)]
        assert line[: len(before)] == before
        encoder = self.tokenizer(request.encoder)["input_ids"]
        scores = self.log_probs(input_ids=encoder, decoder_input_ids=line)
        return [float(scores[t - 1, line[t]]) for t in range(len(before), len(line))]

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def pair(self, request: Pair) -> list[list[float]]:
        coded = self.tokenizer(request.first, request.second, return_tensors="pt", return_token_type_ids=True)
        with torch.no_grad():
            return [[float(torch.log_softmax(self.model(**coded).logits[0], -1)[0])]]

    def answer(self, request: Request) -> list[list[float]]:
        numbers: list[list[float]] = getattr(self, kind(request))(request)
        return numbers


def _same(one: list[int], other: list[int]) -> int:
    equal = [a == b for a, b in zip(one, other, strict=False)]
    return equal.index(False) if False in equal else len(equal)


def _first_difference(texts: list[list[int]]) -> int:
    """Where EuroGEST's code of 2026 begins to read in the list of next-token scores; -1: the last one alone."""
    same = _same(*texts)
    return min(map(len, texts)) - 2 if same == min(map(len, texts)) else same - 1


@torch.no_grad()
def row_answers(model: Any, rows: Sequence[Row], **options: Any) -> list[list[float]]:
    """log P of what each row reads, by a model of transformers: one row at a time, unpadded, with `options` of its call."""
    answers = []
    for row in rows:
        inputs = {"input_ids": torch.tensor([row.ids])}
        if row.encoder_ids:
            inputs = {"input_ids": torch.tensor([row.encoder_ids]), "decoder_input_ids": inputs["input_ids"]}
        if row.type_ids:
            inputs["token_type_ids"] = torch.tensor([row.type_ids])
        logits = model(**inputs, **options).logits[0].double()
        log_p = torch.log_softmax(logits[None] if row.head == "pair" else logits, -1)
        answers.append([float(log_p[at, token]) for at, token in row.lookups])
    return answers


def saved_answers(folder: Path, rows: Sequence[Row], auto: str = "AutoModelForCausalLM", **options: Any) -> list[list[float]]:
    """The same by a model that is loaded from `folder` in float64, with `options` of `from_pretrained`."""
    model = getattr(transformers, auto).from_pretrained(folder, **{"dtype": torch.float64, **options})
    return row_answers(model.eval(), rows)
