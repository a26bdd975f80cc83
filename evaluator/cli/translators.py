"""The translators that commands are given: behind their cache, local models' copies on Ray, language models' own options."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaluator.cli.options import LocalPath, date_option, extra_option, thinking_option
from evaluator_serving.chats import Day
from evaluator_serving.engine import BYTES, EngineOptions
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from evaluator.translate.cache import CachedTranslator
    from evaluator.translate.llm import LLMOptions
    from evaluator.translate.prompt import TranslationPrompt
    from evaluator_serving.budget import Budget

SHARDED = ("model", "llm")
"""Kinds that `--workers` may copy."""


@dataclass(frozen=True, slots=True)
class Money:
    """What may be spent by a command: nothing is asked at all where `offline`; all its translators are paid from the purse."""

    offline: bool
    budget: "Budget"


def talking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a language model is asked (`llm:SPEC`)."""
    for option in (
        extra_option("llm: engine-specific option; may be repeated."),
        click.option("--device", default="auto", show_default=True, help="llm: auto, cpu, cuda, cuda:1, …"),
        click.option("--dtype", type=click.Choice(list(BYTES)), default="float32", show_default=True, help="llm: precision."),
        click.option("--engine", default="auto", show_default=True, metavar="NAME", help="llm: what runs the model."),
        thinking_option,
        date_option("llm: what chat templates write as today's date [2026-01-01, so that cached answers are found]."),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=1),
            help="llm: most tokens of a translation [256]; models that think first need thousands.",
        ),
        click.option(
            "--prompt", type=LocalPath(path_type=Path), help="llm: how the model is asked (TOML, few-shot examples too)."
        ),
    ):
        command = option(command)
    return command


def check_talking(talking: Mapping[str, Any], *specs: str) -> None:
    """Raise InputError where a language model's options are given and none of these translators is one."""
    given = [name for name, value in talking.items() if value and value not in ("auto", "float32")]
    if given and not any(spec.startswith("llm:") for spec in specs):
        raise InputError(f"--{given[0].replace('_', '-')} goes with --translator llm:SPEC, not with {specs[0]!r}: leave it out")


def open_translator(spec: str, cache: Path, money: Money, talking: Mapping[str, Any], workers: int = 1) -> "CachedTranslator":
    """The translator behind its cache; with several workers a local model is spread over them by Ray.

    `talking`: values of `talking_options`. Raises InputError.
    """
    from evaluator.answer_cache import AnswerCache
    from evaluator.translate.base import make_translator
    from evaluator.translate.cache import CachedTranslator
    from evaluator_serving.models.served import is_served

    kind = spec.partition(":")[0]
    options: tuple[Any, ...] = (_llm_options(talking, money),) if kind == "llm" else ()
    unpriced = bool(options) and "max_cost" not in options[0].engine_options.extra
    if unpriced and float(money.budget) and is_served(spec.partition(":")[2]):
        raise InputError(
            "a limit on the cost needs prices: --extra prompt_price=… --extra answer_price=… (US dollars a million tokens)"
        )
    if workers > 1:
        translator = _sharded(spec, kind, options, workers)
    else:
        # What is paid for is on disk answer by answer, whatever batch it is in.
        replies = (cache.with_suffix(".replies.jsonl"),) if kind == "llm" else ()
        translator = make_translator(spec, *options, *replies)
    report = lambda line: click.echo(line, err=True)  # noqa: E731
    return CachedTranslator(translator, AnswerCache(cache), offline=money.offline, budget=money.budget, report=report)


def outcomes(translator: "CachedTranslator") -> str:
    """What became of a language model's answers other than translations, for the end of a line."""
    told: Counter[str] = Counter({name: n for name, n in translator.outcomes.items() if name != "translated"})
    cut = "; raise --max-tokens: answers ended while the model was still thinking" if told["thinking"] else ""
    return "".join(f", {n} {name}" for name, n in sorted(told.items())) + cut


def prompt_of(spec: str, talking: Mapping[str, Any]) -> "TranslationPrompt | None":
    """How a language model is asked, None of another translator."""
    return _prompt(talking) if spec.partition(":")[0] == "llm" else None


def _prompt(talking: Mapping[str, Any]) -> "TranslationPrompt":
    from evaluator.translate.prompt import default_prompt, read_prompt

    return default_prompt() if talking["prompt"] is None else read_prompt(talking["prompt"])


def _llm_options(talking: Mapping[str, Any], money: Money) -> "LLMOptions":
    from evaluator.translate.llm import LLMOptions

    options = EngineOptions(dtype=talking["dtype"], device=talking["device"], extra=talking["extra"])
    if {"prompt_price", "answer_price"} & set(options.extra):
        options = replace(options, extra={**options.extra, "max_cost": money.budget})
    llm_options = LLMOptions(_prompt(talking), talking["engine"], options, thinking=talking.get("thinking") or "")
    if date := talking.get("date"):
        llm_options = replace(llm_options, day=Day.chosen(date))
    return replace(llm_options, max_tokens=talking["max_tokens"]) if talking["max_tokens"] else llm_options


def _sharded(spec: str, kind: str, options: tuple[Any, ...], workers: int) -> Any:
    from evaluator.sweep.hardware import gpus
    from evaluator.sweep.on_ray.cluster import connect
    from evaluator.translate.sharded import ShardedChatTranslator, ShardedTranslator
    from evaluator_serving.models.served import is_served

    if kind not in SHARDED or is_served(spec.partition(":")[2]):
        remedy = "leave it out" if kind not in SHARDED else "a server is asked with --extra concurrency=N at once"
        raise InputError(f"--workers goes with a local model, not with {spec!r}: {remedy}")
    connect("local", None if gpus() else workers)
    made = ShardedChatTranslator if kind == "llm" else ShardedTranslator
    return made(spec, options, workers, gpus=1.0 if gpus() else 0.0)
