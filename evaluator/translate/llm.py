"""Language models as translators: any model that chats, in this process, on Ray or at a server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluator.answer_cache import answer_key
from evaluator.journal import Journal
from evaluator.translate.base import local_source
from evaluator.translate.prompt import TranslationPrompt, own_prompt
from evaluator.translate.tidy import Tidied, tidied
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
class Asking:
    """How a language model is asked.

    Attributes:
        prompt: the words.
        engine, options: what runs it, as for `run`.
        max_tokens: most tokens of a translation.
        thinking: see `ModelSource`.
        day: what chat templates write as today's date: always the same one, for answers are found again by what was asked.
    """

    prompt: TranslationPrompt = field(default_factory=own_prompt)
    engine: str = "auto"
    options: EngineOptions = field(default_factory=EngineOptions)
    max_tokens: int = 256
    thinking: str = ""
    day: Day = DAY


class LLMTranslator:
    """A model that is asked in words, its most probable ones (temperature 0)."""

    price = 0.0
    """Per character: none. A server's tokens are reckoned by its engine (`max_cost` of its options)."""

    def __init__(self, spec: str, asking: Asking | None = None, replies: Path | None = None) -> None:
        """Find the model; it is loaded with the first text. `replies`: file where each of its replies is kept as it comes.

        What a local model is allowed stands behind its spec, as with `model:SPEC`.
        Raises InputError for a model that can't chat and for options that its engine has no use for.
        """
        self._asking = asking or Asking()
        self._replies = replies
        source = served_source(spec) if is_served(spec) else local_source(spec)
        self._source = replace(source, thinking=self._asking.thinking, day=self._asking.day)
        if not self._source.heads & {"causal", "chat"}:
            raise InputError(f"model {spec} generates no text: it can't translate (an encoder-decoder model: model:{spec})")
        self._source = with_file_tokens(self._source, [Chat((Turn("user", "a"),))])
        name, options = self._asking.engine, self._asking.options
        self._engine_name = choose_engine(self._source, {"chat"}, options) if name == "auto" else name
        engine_class(self._engine_name).check(self._source, options, frozenset({"chat"}))
        self._engine: Engine | None = None
        self._longest = 0

    @property
    def system(self) -> str:
        """The spec; of a model at a server its name there."""
        return self._source.served.name if self._source.served else self._source.spec

    @property
    def batch(self) -> int:
        """What an engine with continuous batching has use for; elsewhere little enough that not much is lost by a kill."""
        return 512 if self._engine_name == "vllm" else 64

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """Everything that an answer depends on: the model's and its engine's identity, the prompt, the most tokens."""
        info = identity(self._engine_name, self._source, self._asking.options)
        decoding = decoding_record(self._source, self._engine_name, self._asking.options.extra)
        shaped = decoding.get("applied") or ("before" in decoding and "not applied")
        return {
            "revision": self._source.revision,
            "engine": self._engine_name,
            "dtype": info.dtype,
            "prompt": self._asking.prompt.mark,
            "max_tokens": str(self._asking.max_tokens),
            "details": answer_key(dict(info.details)),
            **({"thinking": self._source.thinking} if self._source.thinking else {}),
            **({"date": self._asking.day.date} if not self._source.served and writes_date(self._source) else {}),
            **({"generation_config": shaped if isinstance(shaped, str) else json.dumps(shaped)} if shaped else {}),
        }

    @cached_property
    def _kept(self) -> AnswerStore | None:
        """This model's replies so far: the file has other models', too."""
        return Journal(self._replies, answer_key(self.system, dict(self.parameters))) if self._replies else None

    @cached_property
    def _encoder(self) -> Any:
        return encoder_for(self._source)

    def ask(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """What is said to each text: `text`, `finish` and `thought` (if any) of a `Reply`, as said.

        Raises InputError for a language without a name or a text that the model can't take, EngineError where the engine fails.
        """
        rows = [self._row(text, language) for text in texts]
        try:
            replies = self._opened(rows).generate(rows, self._kept)
        except EngineError as error:
            if error.row is None:
                raise
            what = str(error).removeprefix(f"row {error.row}: ")
            raise EngineError(f"{texts[error.row]!r}: {what}", error.row, again=error.again) from error
        return [
            {"text": reply.text, "finish": reply.finish, **({"thought": reply.thought} if reply.thought else {})}
            for (reply,) in replies
        ]

    def read(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> list[Tidied]:
        """The translation in each source's answer of `ask`."""
        name = self._asking.prompt.language(language)
        replies = read_replies((answer["text"], answer["finish"], answer.get("thought", "")) for answer in answers)
        return [
            Tidied("", "thinking") if said.cut else tidied(said.answer, finish, source, name)
            for source, said, finish in zip(sources, replies, map(_finish, answers), strict=True)
        ]

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`, tidied; empty where nothing was said or the model refused."""
        return [read.text for read in self.read(texts, language, self.ask(texts, language))]

    def _row(self, text: str, language: str) -> Row:
        turns = self._asking.prompt.turns(text, language)
        try:
            return self._encoded(turns)
        except InputError as error:
            what = f"{text!r} can't be translated by model {self._source.spec}: {error}"
            raise InputError(what + self._remedy(turns)) from error

    def _encoded(self, turns: tuple[Turn, ...]) -> Row:
        row: Row = self._encoder.encode(Chat(turns, max_tokens=self._asking.max_tokens)).rows[0]
        return row

    def _remedy(self, turns: tuple[Turn, ...]) -> str:
        """What helps where a chat template has no place for a system turn; empty where nothing is known to."""
        if turns[0].role != "system":
            return ""
        try:
            self._encoded(turns[1:])
        except InputError:
            return ""
        return ": it takes a prompt without `system` (--prompt FILE)"

    def _opened(self, rows: Sequence[Row]) -> Engine:
        """The engine, with room for these rows: opened anew where longer ones come than it was opened for."""
        longest = max(row.places for row in rows)
        if self._engine is not None and longest > self._longest:
            self._engine.close()
            self._engine = None
        if self._engine is None:
            # Twice as long as any now: texts of one data set are of a kind.
            self._longest = min(2 * longest, max(self._source.context, longest))
            workload = Workload(len(rows), sum(row.places for row in rows), self._longest)
            self._engine = open_engine(self._engine_name, self._source, self._asking.options, rows, workload)
        return self._engine


def _finish(answer: Mapping[str, str]) -> Finish:
    finish: Finish = answer["finish"]  # type: ignore[assignment]
    return finish
