"""What answers cost, and a limit that isn't passed: every request is counted at the most it may cost before it is sent."""

import threading
from dataclasses import dataclass

from evaluator_serving.chats import Chat
from evaluator_serving.errors import EngineError

TURN_TOKENS = 16
"""Tokens that a chat format may put around a turn, at most: nobody's takes more."""


class CostError(EngineError):
    """The next answer could pass the limit."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, as the user gives them."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, prompt_tokens: int, answer_tokens: int) -> float:
        """What so many tokens cost."""
        return (self.prompt * prompt_tokens + self.answer * answer_tokens) / 1e6

    def most(self, chat: Chat) -> float:
        """The most that one answer to a chat may cost: no tokenizer makes more tokens of a text than it has bytes."""
        prompt = sum(len(turn.content.encode()) + TURN_TOKENS for turn in chat.turns)
        return self.of(prompt, chat.max_tokens)


FREE = Prices()


class Meter:
    """Counts what is spent, from several threads; `limit` in US dollars, None for no limit."""

    def __init__(self, prices: Prices, limit: float | None) -> None:
        self._prices = prices
        self._limit = limit
        self._changed = threading.Condition()
        self._reserved = 0.0
        self._under_way = 0
        self.spent = 0.0

    def reserve(self, chat: Chat) -> float:
        """Set aside the most that an answer may cost; where answers under way may leave room for it, wait for them.

        Raises CostError where it could pass the limit all the same.
        """
        most = self._prices.most(chat)
        with self._changed:
            while self._limit is not None and self._under_way and self.spent + self._reserved + most > self._limit:
                self._changed.wait()
            if self._limit is not None and self.spent + most > self._limit:
                raise CostError(
                    f"${self.spent:.4f} spent, and the next answer may cost up to ${most:.4f}: it could pass the limit of "
                    f"${self._limit:g} (max_cost); all answers so far are kept, the same command with a higher limit goes on",
                    again=True,
                )
            self._reserved += most
            self._under_way += 1
        return most

    def settle(self, reserved: float, prompt_tokens: int | None, answer_tokens: int | None) -> None:
        """An answer has come: what its tokens cost; the most, where the server doesn't count them."""
        counted = prompt_tokens is not None and answer_tokens is not None
        with self._changed:
            self._free(reserved)
            self.spent += self._prices.of(prompt_tokens or 0, answer_tokens or 0) if counted else reserved

    def release(self, reserved: float, *, perhaps: bool) -> None:
        """Nothing came; `perhaps` it is billed all the same (an answer that broke off): then it counts as spent."""
        with self._changed:
            self._free(reserved)
            self.spent += reserved if perhaps else 0.0

    def _free(self, reserved: float) -> None:
        self._under_way -= 1
        self._reserved = self._reserved - reserved if self._under_way else 0.0  # no rounding is left
        self._changed.notify_all()
