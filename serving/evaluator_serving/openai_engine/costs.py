"""What answers cost, and a limit that isn't passed: every request is counted at the most it may cost before it is sent."""

from dataclasses import dataclass

from evaluator_serving.chats import Chat
from evaluator_serving.purse import Purse

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

    def most(self, chat: Chat) -> float:
        """The most that one answer to a chat may cost: no tokenizer makes more tokens of a text than it has bytes."""
        prompt = sum(len(turn.content.encode()) + TURN_TOKENS for turn in chat.turns)
        return self.of(prompt, chat.max_tokens)


FREE = Prices()


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts what one engine's answers cost, out of a purse."""

    prices: Prices
    purse: Purse

    def reserve(self, chat: Chat) -> float:
        """Set aside the most that an answer may cost: see `Purse.reserve`."""
        most = self.prices.most(chat)
        self.purse.reserve(most)
        return most

    def settle(self, reserved: float, prompt_tokens: int | None, answer_tokens: int | None) -> None:
        """An answer has come: what its tokens cost; the most, where the server doesn't count them."""
        counted = prompt_tokens is not None and answer_tokens is not None
        self.purse.settle(reserved, self.prices.of(prompt_tokens or 0, answer_tokens or 0) if counted else reserved)

    def release(self, reserved: float, *, perhaps: bool) -> None:
        """Nothing came; `perhaps` it is billed all the same (an answer that broke off): then it counts as spent."""
        self.purse.settle(reserved, reserved if perhaps else 0.0)
