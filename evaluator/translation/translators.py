"""The translators that commands are given: behind their cache, local models' copies on Ray, language models' own options."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from evaluator.answer_cache import AnswerCache
from evaluator.sweep.hardware import gpus
from evaluator.translate.base import Translator, make_translator
from evaluator.translate.cache import CachedTranslator
from evaluator.translate.llm import LLMOptions
from evaluator.translate.prompt import TranslationPrompt, default_prompt, read_prompt
from evaluator.translate.sharded import Copies
from evaluator_serving.budget import Budget
from evaluator_serving.chats import Day
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.served import is_served

SHARDED = ("model", "llm")
"""Kinds that several workers may copy."""


@dataclass(frozen=True, slots=True)
class Money:
    """What may be spent: with `offline` only the cache answers; all translators of a command share the budget."""

    offline: bool
    budget: Budget


class LLMChoices(TypedDict, total=False):
    """How a language model (`llm:SPEC`) is asked: `engine` to `extra` as for `evaluator.run`; `prompt`: TOML file."""

    engine: str
    dtype: str
    device: str
    extra: dict[str, str]
    thinking: str | None
    date: str | None
    max_tokens: int | None
    prompt: Path | None


def check_talking(talking: LLMChoices, *specs: str) -> None:
    """Raise InputError where a language model's options are given and none of these translators is one."""
    chosen_options = [name for name, value in talking.items() if value and value not in ("auto", "float32")]
    if chosen_options and not any(spec.startswith("llm:") for spec in specs):
        raise InputError(f"--{chosen_options[0].replace('_', '-')} requires --translator llm:SPEC, not {specs[0]!r}: remove it")


def open_translator(
    spec: str, cache: Path, money: Money, talking: LLMChoices, workers: int = 1, report: Callable[[str], None] = print
) -> CachedTranslator:
    """The translator behind its cache; with several workers a local model is spread over them by Ray.

    `talking`: how a language model is asked; `report`: called with lines on the progress. Raises InputError.
    """
    kind = spec.partition(":")[0]
    options: tuple[Any, ...] = (_llm_options(talking, money),) if kind == "llm" else ()
    unpriced = bool(options) and "max_cost" not in options[0].engine_options.extra
    if unpriced and float(money.budget) and is_served(spec.partition(":")[2]):
        raise InputError(
            "a limit on the cost needs prices: --extra prompt_price=… --extra answer_price=… (US dollars a million tokens)"
        )
    if workers > 1 and (kind not in SHARDED or is_served(spec.partition(":")[2])):
        remedy = "remove it" if kind not in SHARDED else "for a server use --extra concurrency=N"
        raise InputError(f"--workers requires a local model, not {spec!r}: {remedy}")
    # What is paid for is on disk answer by answer, whatever batch it is in.
    replies = (cache.with_suffix(".replies.jsonl"),) if kind == "llm" and workers == 1 else ()
    translator = make_translator(spec, *options, *replies)
    copies = _copies(translator, spec, options, workers) if workers > 1 else None
    return CachedTranslator(
        translator,
        AnswerCache(cache),
        offline=money.offline,
        budget=money.budget,
        report=report,
        copies=copies,
        workers=workers,
    )


def outcomes(translator: CachedTranslator) -> str:
    """What became of a language model's answers other than translations, for the end of a line."""
    counts: Counter[str] = Counter({name: n for name, n in translator.outcomes.items() if name != "translated"})
    cut = "; raise --max-tokens: answers ended while the model was still thinking" if counts["thinking"] else ""
    return "".join(f", {n} {name}" for name, n in sorted(counts.items())) + cut


def prompt_of(spec: str, talking: LLMChoices) -> TranslationPrompt | None:
    """How a language model is asked, None of another translator."""
    return _prompt(talking) if spec.partition(":")[0] == "llm" else None


def _prompt(talking: LLMChoices) -> TranslationPrompt:
    file = talking.get("prompt")
    return default_prompt() if file is None else read_prompt(file)


def _llm_options(talking: LLMChoices, money: Money) -> LLMOptions:
    options = EngineOptions(
        dtype=talking.get("dtype", "float32"), device=talking.get("device", "auto"), extra=talking.get("extra") or {}
    )
    if {"prompt_price", "answer_price"} & set(options.extra):
        options = replace(options, extra={**options.extra, "max_cost": money.budget})
    llm_options = LLMOptions(_prompt(talking), talking.get("engine", "auto"), options, thinking=talking.get("thinking") or "")
    if date := talking.get("date"):
        llm_options = replace(llm_options, day=Day.chosen(date))
    most = talking.get("max_tokens")
    return replace(llm_options, max_tokens=most) if most else llm_options


def _copies(translator: Translator, spec: str, options: tuple[Any, ...], workers: int) -> Copies:
    from evaluator.sweep.on_ray.cluster import connect  # imports Ray

    connect("local", None if gpus() else workers)
    return Copies(translator, spec, options, workers, gpus=1.0 if gpus() else 0.0)
