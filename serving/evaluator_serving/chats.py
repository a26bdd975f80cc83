"""Chats: prompts for models that generate text, and their replies. Plain data, used by every layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Literal, Protocol

from evaluator_serving.errors import InputError

Role = Literal["system", "user", "assistant"]

Finish = Literal["stop", "length", "refused", "filtered"]
"""How an answer ended: by the model, at the token limit, by a refusal that the server reported, or removed by the server's
filter."""


REFUSAL = (
    r"^\W*(i['’]?m sorry|i am sorry|sorry|i apologi[sz]e|i can['’]?t|i can ?not|i won['’]?t|i['’]?m not able|i am not able"
    r"|i['’]?m unable|i am unable|as an ai)\b"
)
"""Beginnings of answers that count as refusals if the server does not report one (lower-cased text)."""


@dataclass(frozen=True, slots=True)
class Day:
    """The date that chat templates insert as today's.

    Attributes:
        date: as YYYY-MM-DD.
        given: whether the user chose it; then it also replaces the fixed date in some templates.
    """

    date: str
    given: bool = False

    @classmethod
    def chosen(cls, text: str) -> "Day":
        """A date chosen by the user. Raises InputError unless it is YYYY-MM-DD."""
        try:
            return cls(date.fromisoformat(text).isoformat(), given=True)
        except ValueError:
            raise InputError(f"--date {text!r} is not a date: write YYYY-MM-DD") from None

    def strftime(self, format_: str) -> str:
        """The day's beginning in a template's format."""
        return datetime.fromisoformat(self.date).strftime(format_)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a chat."""

    role: Role
    content: str


def spoken(turns: tuple[Turn, ...], system: str | None) -> tuple[Turn, ...]:
    """The turns behind a system prompt that everything is asked under (None: as they are).

    Raises ValueError where they begin with one of their own.
    """
    if system is None:
        return turns
    if turns and turns[0].role == "system":
        raise ValueError("it already has a system prompt: remove one of the two")
    return (Turn("system", system), *turns)


@dataclass(frozen=True, slots=True)
class Chat:
    """Turns that end with the user's; the answer is what the model says next, in words. For models with a chat template.

    Attributes:
        turns: the conversation, a system turn first if there is one.
        answers: how many answers are wanted.
        temperature: 0 takes the most probable token each time, and all answers are then the same.
        max_tokens: most tokens of an answer.
        seed: the i-th answer (from 0) is drawn with `seed` + i, whatever else is asked beside it.
    """

    turns: tuple[Turn, ...]
    answers: int = 1
    temperature: float = 0.0
    max_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for turns that don't end with the user's, and for numbers that make no sense."""
        if not self.turns or self.turns[-1].role != "user":
            raise ValueError("a chat ends with the user's turn")
        if self.answers < 1 or self.max_tokens < 1 or self.temperature < 0:
            raise ValueError("a chat wants an answer or more, of a token or more, at a temperature of 0 or more")

    def single(self) -> Iterator["Chat"]:
        """A chat for each of the answers, with its own seed."""
        return (replace(self, answers=1, seed=self.seed + index) for index in range(self.answers))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to a chat.

    Attributes:
        text: what was said, thoughts included (`thoughts.read_replies` leaves them out), without control tokens but those
            around thoughts; empty where nothing was. Where the chat template opened the thinking, it begins with that tag.
        finish: how it ended.
        tokens: its token ids without the end token; empty where the engine doesn't know them.
        prompt_tokens, answer_tokens: how many tokens the chat and the answer took, as whoever answered counts (and bills) them;
            0 where a server doesn't.
        thought: what a server gave as the thinking in a field of its own.
        served, system, date: of a server: the model's name and the system fingerprint that it reported, and when (UTC).
    """

    text: str
    finish: Finish = "stop"
    tokens: tuple[int, ...] = ()
    prompt_tokens: int = 0
    answer_tokens: int = 0
    thought: str = ""
    served: str = ""
    system: str = ""
    date: str = ""


class AnswerStore(Protocol):
    """Answers that are on disk already: an engine whose answers cost something asks for nothing that is here.

    What is added is on disk when the call returns. May be used from several threads at once.
    """

    def get(self, chat: Chat) -> Reply | None:
        """The reply to a chat of one answer, None where there is none."""

    def add(self, chat: Chat, reply: Reply) -> None:
        """Keep a reply."""

    def logprob(self, prefix: tuple[int, ...], token: int) -> float | None:
        """log P of a token after a prefix, None if unknown."""

    def add_logprobs(self, entries: Sequence[tuple[tuple[int, ...], int, float]]) -> None:
        """Store (prefix, token, log P) entries."""
