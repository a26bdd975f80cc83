"""Whether a loaded generative model predicts from earlier tokens only, found out by asking it. Every engine passes here.

A name says nothing: XLNet without its permutation mask, a BERT decoder whose config lacks `is_decoder` and models with
attention in both directions load as generative ones, and every number that they give is wrong. A text that begins another
one is read off the longer (`rows.merge`), so the numbers mustn't depend on a text's length either (ProphetNet's do). It costs
three inputs of LENGTH tokens and one of half of them: 0.4 s for SmolLM2-135M in float32 on one core.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import GREEDY, Head, Row

TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 0.02, "bfloat16": 0.1, "bf16x2": 1e-4}
"""How far log P of earlier tokens may move when later ones change (natural log).

All inputs have one shape, so every kernel adds in one order: of 25 causal architectures none moves at all in any dtype, but
mixtures of experts by up to 8e-6 in float32. Models that see ahead move by 0.3 to 7.
"""
APART = {"float64": 1e-6, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.6, "bf16x2": 1e-3}
"""The same between inputs of different length, which kernels may add in different orders. ProphetNet's move by 0.3 to 2."""
QUANTIZED = 1.0
"""The same where activations may be quantized with one scale for all tokens."""

LENGTH = 24
"""Tokens of a probe; the second half is what changes."""
_SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Probe:
    """Two rows of one length that begin alike and have no later token in common.

    The lookups, but for the last, ask for the common beginning's own tokens; the last one makes every engine compute the
    whole row (vLLM is asked for no more of a row than is read).
    """

    one: Row
    other: Row

    @property
    def beginning(self) -> Row:
        """What the two have in common, as a row of its own, read like them."""
        return replace(self.one, ids=self.one.ids[: len(self.one.ids) // 2], lookups=self.one.lookups[:-1])


def probes(rows: Sequence[Row], context: int) -> tuple[Probe, ...]:
    """A probe for each head with a causal side, made of the tokens of the shortest of `rows`."""
    made = []
    heads: tuple[Head, ...] = ("causal", "seq2seq")
    for head in heads:
        members = sorted((row for row in rows if row.head == head and row.lookups), key=lambda row: (row.length, row.ids))
        length = min(LENGTH, context - 1)
        if not members or length < _SHORTEST:
            continue
        known = sorted({t for row in members[:8] for t in (*row.ids, *(token for _, token in row.lookups))} - {GREEDY})
        following = dict(zip(known, [*known[1:], known[0] if len(known) > 1 else int(known[0] == 0)], strict=True))
        ids = tuple(islice(cycle(t for t in members[0].ids if t != GREEDY), length))
        half = length // 2
        lookups = (*((at, ids[at + 1]) for at in range(half - 1)), (length - 1, ids[0]))
        changed = (*ids[:half], *(following[t] for t in ids[half:]))
        one, other = (Row(head, some, lookups, encoder_ids=members[0].encoder_ids) for some in (ids, changed))
        made.append(Probe(one, other))
    return tuple(made)


def check_causal(engine: Engine, source: ModelSource, options: EngineOptions, asked: Sequence[Probe]) -> None:
    """Raise InputError where a probe's beginning is answered differently with other tokens or none behind it, or asked again.

    One row at a time: a batch could hide what a row sees. A probe that can't be answered (NaN) is left to the run, whose
    error names the sample.
    """
    quantized = options.quantization is not None or getattr(source.config, "quantization_config", None) is not None
    limit, far = (QUANTIZED if quantized else limits.get(options.dtype, QUANTIZED) for limits in (TOLERANCE, APART))
    for probe in asked:
        try:
            first, again, other = (engine.score([row])[0][:-1] for row in (probe.one, probe.one, probe.other))
        except EngineError:
            continue
        if _apart(first, again) > limit:
            raise InputError(
                f"model {source.spec}: is not deterministic (log P of the same text differs by "
                f"{_apart(first, again):.2g}), so they mean nothing: use another model or engine"
            )
        if (moved := _apart(first, other)) > limit:
            raise InputError(
                f"model {source.spec}: its attention is not causal (log P of earlier tokens changes by {moved:.2g} "
                f"when later tokens change), so it can't be scored as a generative model: {_remedy(source)}"
            )
        # Of a decoder behind an encoder every text is a row of its own; in which dtype a server computes isn't known.
        if probe.one.head == "seq2seq" or not engine.reads_weights:
            continue
        try:
            alone = engine.score([probe.beginning])[0]
        except EngineError:
            continue
        if (moved := _apart(first, alone)) > far:
            raise InputError(
                f"model {source.spec}: the probability of a token depends on the length of the text after it (log P changes by "
                f"{moved:.2g}), so it can't be scored as a generative model: choose another model"
            )


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max(initial=0.0))


def _remedy(source: ModelSource) -> str:
    if getattr(source.config, "is_decoder", None) is False:
        return 'if it was trained as a decoder, set "is_decoder": true in its config.json, else choose another model'
    return "choose a model that was trained to predict the next token from the ones before it"
