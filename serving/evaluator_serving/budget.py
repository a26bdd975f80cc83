"""What a command may spend: one purse for all who spend in it, from several threads."""

import threading

from evaluator_serving.errors import EngineError


class CostError(EngineError):
    """The next answer could pass the limit."""


class Budget:
    """US dollars; `limit` is None for no limit. Among an engine's options it stands where its limit would (`max_cost`).

    Attributes:
        spent: so far, by all.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.spent = 0.0
        self._changed = threading.Condition()
        self._reserved = 0.0
        self._under_way = 0

    def __float__(self) -> float:
        """The limit."""
        return float("inf") if self.limit is None else float(self.limit)

    def holds(self, cost: float) -> bool:
        """Whether so much more may be spent."""
        return self.spent + cost <= float(self)

    def reserve(self, most: float) -> None:
        """Set aside the most that an answer may cost; where answers under way may leave room for it, wait for them.

        Raises CostError where it could pass the limit all the same.
        """
        with self._changed:
            while self._under_way and not self.holds(self._reserved + most):
                self._changed.wait()
            if not self.holds(most):
                raise CostError(
                    f"${self.spent:.4f} spent, and the next answer may cost up to ${most:.4f}: it could pass the limit of "
                    f"${float(self):g} (max_cost); all answers so far are kept, the same command with a higher limit goes on",
                    again=True,
                )
            self._reserved += most
            self._under_way += 1

    def settle(self, reserved: float, cost: float) -> None:
        """What an answer under way has cost in the end."""
        with self._changed:
            self._under_way -= 1
            self._reserved = self._reserved - reserved if self._under_way else 0.0  # no rounding is left
            self.spent += cost
            self._changed.notify_all()

    def spend(self, cost: float) -> None:
        """What has cost something without being under way."""
        with self._changed:
            self.spent += cost
