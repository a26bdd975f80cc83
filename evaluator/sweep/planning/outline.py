"""A plan from configurations alone: no hub, no tokenizer, no weights. Requests, parameters, memory and placements are exact;
tokens, and so hours, are estimated."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evaluator.scoring.driver import Prepared, for_each_model
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer
from evaluator.scoring.model_setup import ModelSetup, set_up_model, with_condition
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.summary import TokenCounts
from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import Fleet
from evaluator.sweep.planning.plan import Plan, plan_models
from evaluator_serving.chats import Chat
from evaluator_serving.models.outline import outlined
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Choice, Continuation, Masked, Pair, Request, SharedTokens

LETTERS = {64_000: 2.2, 1 << 40: 3.3}
"""Vocabularies up to this size → letters of a text that a token holds, over the languages of Europe. The first was measured
with SmolLM2's vocabulary (49,152); the second is an assumption for vocabularies made for many languages."""


def outline_plan(
    spec: RunSpec, configurations: Mapping[str, Mapping[str, Any]], fleet: Fleet, speeds: Speeds | None = None
) -> Plan:
    """The plan of a sweep of which nothing was run yet. Raises InputError as `prepare` and `make_plan` do."""
    letters: dict[frozenset[tuple[str, frozenset[str]]], TokenCounts] = {}

    def set_up(
        model: ModelSpec, source: ModelSource, run: RunSpec, tasks: Sequence[LoadedTask], renderer: Renderer
    ) -> tuple[ModelSetup, TokenCounts]:
        setup = set_up_model(model, source, run, tasks, renderer)
        key = frozenset(setup.heads.items())  # many models are asked the same
        if key not in letters:
            letters[key] = _count_letters(renderer.requests(setup.heads).values())
        vocabulary = setup.source.config.get_text_config().vocab_size
        return setup, letters[key].scaled(next(count for size, count in LETTERS.items() if vocabulary <= size))

    def find_source(model: ModelSpec) -> ModelSource:
        return with_condition(outlined(model.spec, configurations, model.chat_template), model)

    tasks, models, errors = for_each_model(spec, find_source, set_up)
    return plan_models(Prepared(tuple(tasks), (), errors), models, fleet, speeds)


def _count_letters(requests: Collection[Request]) -> TokenCounts:
    """Counts with letters in the place of tokens."""
    passes = [_passes(request) for request in requests]
    return TokenCounts(len(passes), sum(map(len, passes)), sum(map(sum, passes)), max(map(max, passes), default=0))


def _passes(request: Request) -> list[int]:
    """Letters of each forward pass of a request; a beginning that candidates share counts once."""
    match request:
        case Continuation():
            first, *others = map(len, request.candidates)
            return [len(request.context) + first, *others]
        case Masked():
            text = sum(map(len, request.parts))
            return [text + sum(map(len, words)) for words in request.candidates]
        case Choice():
            prompt = sum(len(turn.content) for turn in request.turns)
            return [prompt + max(map(len, request.candidates))]
        case Chat():
            per_letter = next(iter(LETTERS.values()))
            return [sum(len(turn.content) for turn in request.turns) + round(per_letter * request.answers * request.max_tokens)]
        case Pair():
            return [len(request.first) + len(request.second)]
        case SharedTokens():
            return [len(text) for text in (request.first, request.second) for _ in text.split()]
