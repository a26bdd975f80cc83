"""The cost of answers, and its limit: the maximum cost of a request is reserved before it is sent."""

import threading
from dataclasses import dataclass

from evaluator_serving.budget import Budget
from evaluator_serving.chats import Chat

TURN_TOKENS = 16
"""Tokens that a chat format may put around a turn, at most: nobody's takes more."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, as given by the user."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, prompt_tokens: int, answer_tokens: int) -> float:
        """The cost of these tokens."""
        return (self.prompt * prompt_tokens + self.answer * answer_tokens) / 1e6

    def most(self, chat: Chat, longest: int = 0) -> float:
        """The maximum cost of one answer to a chat: no tokenizer produces more tokens than a text has bytes.

        `longest`: the most tokens billed for an answer so far, which may exceed the chat's limit.
        """
        prompt = sum(len(turn.content.encode()) + TURN_TOKENS for turn in chat.turns)
        return self.of(prompt, max(chat.max_tokens, longest))


FREE = Prices()


class CostMeter:
    """Counts the cost of one engine's answers against a budget.

    Some servers bill reasoning in addition to the chat's maximum tokens. So with a limit the first answer is awaited alone,
    and later ones are assumed to be as long as the longest so far.
    """

    def __init__(self, prices: Prices, budget: Budget) -> None:
        self.prices, self.budget = prices, budget
        self._changed = threading.Condition()
        self._under_way = 0
        self._longest: int | None = None

    def reserve(self, chat: Chat) -> float:
        """Reserve the maximum cost of an answer: see `Budget.reserve`."""
        with self._changed:
            while self.budget.limit is not None and self._longest is None and self._under_way:
                self._changed.wait()
            self._under_way += 1
            most = self.prices.most(chat, self._longest or 0)
        try:
            self.budget.reserve(most)
        except BaseException:
            self._ended(None)
            raise
        return most

    def settle(self, reserved: float, prompt_tokens: int | None, answer_tokens: int | None) -> None:
        """Record the cost of an answer's tokens; the maximum, if the server does not count them."""
        counted = prompt_tokens is not None and answer_tokens is not None
        self.budget.settle(reserved, self.prices.of(prompt_tokens or 0, answer_tokens or 0) if counted else reserved)
        self._ended(answer_tokens or 0)

    def release(self, reserved: float, *, perhaps: bool) -> None:
        """Release a reservation without an answer; if it is `perhaps` billed (a truncated answer), it counts as spent."""
        self.budget.settle(reserved, reserved if perhaps else 0.0)
        self._ended(None)

    def _ended(self, answer_tokens: int | None) -> None:
        with self._changed:
            self._under_way -= 1
            if answer_tokens is not None:
                self._longest = max(self._longest or 0, answer_tokens)
            self._changed.notify_all()
