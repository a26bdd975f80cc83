"""Language models as translators: any chat model, in this process, on Ray or on a server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluator.answer_cache import answer_key
from evaluator.journal import Journal
from evaluator.translate.base import ChatTranslator, local_source
from evaluator.translate.parsing import ParsedTranslation, parse_answer
from evaluator.translate.prompt import TranslationPrompt, default_prompt
from evaluator_serving.chats import AnswerStore, Chat, Day, Finish, Turn
from evaluator_serving.choose import choose_engine
from evaluator_serving.encoding import encoder_for
from evaluator_serving.encoding.template import writes_date
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.identity import identity
from evaluator_serving.models.decoding import decoding_record
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.served import is_served, served_source
from evaluator_serving.opening import open_engine
from evaluator_serving.registry import engine_class
from evaluator_serving.rows import Row, Workload
from evaluator_serving.thoughts import read_replies

DAY = Day("2026-01-01")


@dataclass(frozen=True, slots=True)
class LLMOptions:
    """Options of a language model that translates.

    Attributes:
        prompt: the prompt.
        engine, engine_options: as for `run`.
        max_tokens: maximum tokens of a translation.
        thinking: see `ModelSource`.
        day: today's date for chat templates: constant, because it is part of the prompt and so of the cache key.
    """

    prompt: TranslationPrompt = field(default_factory=default_prompt)
    engine: str = "auto"
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    max_tokens: int = 256
    thinking: str = ""
    day: Day = DAY


class LLMTranslator(ChatTranslator):
    """A prompted language model, decoded at temperature 0."""

    price = 0.0
    """None per character: the cost of a server's tokens is limited by its engine (option `max_cost`)."""

    def __init__(self, spec: str, options: LLMOptions | None = None, replies: Path | None = None) -> None:
        """Resolve the model; it is loaded with the first text. `replies`: file to which each reply is appended at once.

        Raises InputError for a model that cannot chat and for options that its engine does not have.
        """
        self._options = options or LLMOptions()
        self._replies = replies
        source = served_source(spec) if is_served(spec) else local_source(spec)
        self._source = replace(source, thinking=self._options.thinking, day=self._options.day)
        if not self._source.heads & {"causal", "chat"}:
            raise InputError(f"model {spec} can't generate text: for an encoder-decoder model write model:{spec}")
        self._source = with_file_tokens(self._source, [Chat((Turn("user", "a"),))])
        name, engine_options = self._options.engine, self._options.engine_options
        self._engine_name = choose_engine(self._source, {"chat"}, engine_options) if name == "auto" else name
        engine_class(self._engine_name).check(self._source, engine_options, frozenset({"chat"}))
        self._engine: Engine | None = None
        self._longest = 0

    @property
    def system(self) -> str:
        """The spec; for a model on a server, its name there."""
        return self._source.served.name if self._source.served else self._source.spec

    @property
    def batch(self) -> int:
        """Enough for continuous batching with vLLM; otherwise small, so that an interruption loses little."""
        return 512 if self._engine_name == "vllm" else 64

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """Everything that an answer depends on: identity of model and engine, prompt, maximum tokens."""
        info = identity(self._engine_name, self._source, self._options.engine_options)
        decoding = decoding_record(self._source, self._engine_name, self._options.engine_options.extra)
        generation_config = decoding.get("applied") or ("before" in decoding and "not applied")
        return {
            "revision": self._source.revision,
            "engine": self._engine_name,
            "dtype": info.dtype,
            "prompt": self._options.prompt.digest(16),
            "max_tokens": str(self._options.max_tokens),
            "details": answer_key(dict(info.details)),
            **({"thinking": self._source.thinking} if self._source.thinking else {}),
            **({"date": self._options.day.date} if not self._source.served and writes_date(self._source) else {}),
            **({"generation_config": _as_text(generation_config)} if generation_config else {}),
        }

    @cached_property
    def _journal(self) -> AnswerStore | None:
        """This model's earlier replies; other models' replies in the same file are ignored."""
        return Journal(self._replies, answer_key(self.system, dict(self.parameters))) if self._replies else None

    @cached_property
    def _encoder(self) -> Any:
        return encoder_for(self._source)

    def generate(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """The reply to each text: `text`, `finish` and (if any) `thought` of a `Reply`.

        Raises InputError for a language without a name or a text that cannot be encoded, EngineError if the engine fails.
        """
        rows = [self._row(text, language) for text in texts]
        try:
            replies = self._open_engine(rows).generate(rows, self._journal)
        except EngineError as error:
            if error.row is None:
                raise
            what = str(error).removeprefix(f"row {error.row}: ")
            raise EngineError(f"{texts[error.row]!r}: {what}", error.row, again=error.again) from error
        return [
            {"text": reply.text, "finish": reply.finish, **({"thought": reply.thought} if reply.thought else {})}
            for (reply,) in replies
        ]

    def parse(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> list[ParsedTranslation]:
        """See ChatTranslator.parse."""
        name = self._options.prompt.language(language)
        replies = read_replies((answer["text"], answer["finish"], answer.get("thought", "")) for answer in answers)
        return [
            ParsedTranslation("", "thinking") if said.cut else parse_answer(said.answer, finish, source, name)
            for source, said, finish in zip(sources, replies, map(_finish, answers), strict=True)
        ]

    def _row(self, text: str, language: str) -> Row:
        turns = self._options.prompt.turns(text, language)
        try:
            return self._encoded(turns)
        except InputError as error:
            what = f"{text!r} can't be translated by model {self._source.spec}: {error}"
            raise InputError(what + self._remedy(turns)) from error

    def _encoded(self, turns: tuple[Turn, ...]) -> Row:
        row: Row = self._encoder.encode(Chat(turns, max_tokens=self._options.max_tokens)).rows[0]
        return row

    def _remedy(self, turns: tuple[Turn, ...]) -> str:
        """What helps where a chat template has no place for a system turn; empty where nothing is known to."""
        if turns[0].role != "system":
            return ""
        try:
            self._encoded(turns[1:])
        except InputError:
            return ""
        return ": give a prompt without `system` (--prompt FILE)"

    def _open_engine(self, rows: Sequence[Row]) -> Engine:
        """The engine, sized for these rows. Reopened if they are longer than it was opened for."""
        longest = max(row.places for row in rows)
        if self._engine is not None and longest > self._longest:
            self._engine.close()
            self._engine = None
        if self._engine is None:
            # Twice the present maximum: later texts of the data set are of similar length.
            self._longest = min(2 * longest, max(self._source.context, longest))
            workload = Workload(len(rows), sum(row.places for row in rows), self._longest)
            self._engine = open_engine(self._engine_name, self._source, self._options.engine_options, rows, workload)
        return self._engine


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _finish(answer: Mapping[str, str]) -> Finish:
    finish: Finish = answer["finish"]  # type: ignore[assignment]
    return finish
