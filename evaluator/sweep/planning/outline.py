"""A plan from configurations alone: no hub, no tokenizer, no weights. What is exact: requests, parameters, memory, placements.
What is estimated: tokens, and so the hours."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluator.scoring.driver import Prepared
from evaluator.scoring.failures import Failures
from evaluator.scoring.prepare import LoadedTask, Renderer, check_names, load_tasks
from evaluator.scoring.skip_rules import abilities, missing_head
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.benches import Speeds
from evaluator.sweep.hardware import Fleet
from evaluator.sweep.planning.fit import allocations
from evaluator.sweep.planning.plan import Needs, Plan, TokenCounts, demand, scheduled
from evaluator_serving.chats import Chat
from evaluator_serving.choose import choose_engine
from evaluator_serving.errors import ModelError
from evaluator_serving.models.outline import outlined
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import check_fit
from evaluator_serving.requests import Choice, Continuation, Masked, Pair, Request, SharedTokens

LETTERS = {64_000: 2.2, 1 << 40: 3.3}
"""Vocabularies up to this size → letters of a text that a token holds, over the languages of Europe. The first was measured
with SmolLM2's vocabulary (49,152); the second is an assumption for vocabularies made for many languages."""


def outline_plan(
    spec: RunSpec, configurations: Mapping[str, Mapping[str, Any]], fleet: Fleet, speeds: Speeds | None = None
) -> Plan:
    """The plan of a sweep of which nothing was run yet. Raises InputError as `prepare` and `make_plan` do."""
    check_names(spec.models)
    tasks = load_tasks(spec)
    renderer = Renderer(spec.protocol)
    errors = Failures()
    needs: list[Needs] = []
    counted: dict[_Heads, _Letters] = {}
    firsts: list[tuple[str, tuple[Any, ...]]] = []
    for model in spec.models:
        with errors.of(model.name, refuse=True):
            source = outlined(model.spec, configurations, model.chat_template)
            engine = choose_engine(source, source.heads, model.options) if model.engine == "auto" else model.engine
            check_fit(engine, source, model.options, source.heads)
            load = _load(model, source, tasks, renderer, counted)
            sizes = demand(model, source, engine, load)
            loaded = (model.spec, engine, model.chat_template, model.options, model.tasks)
            alike = next((first for first, other in firsts if other == loaded), model.name)
            firsts.append((alike, loaded))
            needs.append(Needs(sizes, load.requests, load.forwards, (), allocations(sizes, fleet, speeds), alike))
    if errors and not needs:
        raise errors.told()
    return scheduled(Prepared(tuple(tasks), (), errors), fleet, needs, speeds or Speeds())


@dataclass(frozen=True, slots=True)
class _Letters:
    """Letters of some requests: how many requests, forward passes and letters there are, and letters of the longest pass."""

    requests: int
    passes: int
    letters: int
    longest: int

    @classmethod
    def of(cls, requests: Collection[Request]) -> "_Letters":
        passes = [_passes(request) for request in requests]
        return cls(len(passes), sum(map(len, passes)), sum(map(sum, passes)), max(map(max, passes), default=0))


_Heads = tuple[tuple[str, frozenset[str]], ...]
"""Tasks with the heads that a model is asked with."""


def _load(
    model: ModelSpec,
    source: ModelSource,
    tasks: Iterable[LoadedTask],
    renderer: Renderer,
    counted: dict[_Heads, _Letters],
) -> TokenCounts:
    """What a model is asked; `counted` is what others were, of whom many are asked the same."""
    can = abilities(source.heads)
    mine = [
        (loaded, loaded.task.uses(can))
        for loaded in tasks
        if (not model.tasks or loaded.task.name in model.tasks) and missing_head(loaded.task, can, source.spec) is None
    ]
    key = tuple((loaded.task.name, heads) for loaded, heads in mine)
    if key not in counted:
        requests: dict[str, Request] = {}
        for loaded, heads in mine:
            requests |= renderer.render(loaded, heads).requests
        counted[key] = _Letters.of(requests.values())
    asked = counted[key]
    if not asked.requests:
        raise ModelError(f"{model.name}: no task can ask it: choose another model or task")
    vocabulary = source.config.get_text_config().vocab_size
    per_token = next(letters for size, letters in LETTERS.items() if vocabulary <= size)
    return TokenCounts(asked.requests, asked.passes, round(asked.letters / per_token), round(asked.longest / per_token))


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
