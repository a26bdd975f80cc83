"""What answers cost, and a limit that isn't passed: every request is counted at the most it may cost before it is sent."""

import threading
from dataclasses import dataclass

from evaluator_serving.budget import Budget
from evaluator_serving.chats import Chat

TURN_TOKENS = 16
"""Tokens that a chat format may put around a turn, at most: nobody's takes more."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, as the user gives them."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, prompt_tokens: int, answer_tokens: int) -> float:
        """What so many tokens cost."""
        return (self.prompt * prompt_tokens + self.answer * answer_tokens) / 1e6

    def most(self, chat: Chat, longest: int = 0) -> float:
        """The most that one answer to a chat may cost: no tokenizer makes more tokens of a text than it has bytes.

        `longest`: tokens that other answers were billed, which may be more than a chat allows.
        """
        prompt = sum(len(turn.content.encode()) + TURN_TOKENS for turn in chat.turns)
        return self.of(prompt, max(chat.max_tokens, longest))


FREE = Prices()


class CostMeter:
    """Counts what one engine's answers cost, out of a purse.

    Some servers bill thoughts on top of the tokens that a chat allows. So where there is a limit the first answer is waited for
    before others are asked for, and every later one is taken to be as long as the longest so far.
    """

    def __init__(self, prices: Prices, budget: Budget) -> None:
        self.prices, self.budget = prices, budget
        self._changed = threading.Condition()
        self._under_way = 0
        self._longest: int | None = None

    def reserve(self, chat: Chat) -> float:
        """Set aside the most that an answer may cost: see `Budget.reserve`."""
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
        """An answer has come: what its tokens cost; the most, where the server doesn't count them."""
        counted = prompt_tokens is not None and answer_tokens is not None
        self.budget.settle(reserved, self.prices.of(prompt_tokens or 0, answer_tokens or 0) if counted else reserved)
        self._ended(answer_tokens or 0)

    def release(self, reserved: float, *, perhaps: bool) -> None:
        """Nothing came; `perhaps` it is billed all the same (an answer that broke off): then it counts as spent."""
        self.budget.settle(reserved, reserved if perhaps else 0.0)
        self._ended(None)

    def _ended(self, answer_tokens: int | None) -> None:
        with self._changed:
            self._under_way -= 1
            if answer_tokens is not None:
                self._longest = max(self._longest or 0, answer_tokens)
            self._changed.notify_all()
