"""The spending limit of a command, shared by several threads."""

import threading

from evaluator_serving.errors import EngineError


class CostError(EngineError):
    """The next answer could exceed the limit."""


class Budget:
    """US dollars; `limit` is None for no limit. It replaces the number of the engine option `max_cost`.

    Attributes:
        spent: the total so far.
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
        """Whether this amount may still be spent."""
        return self.spent + cost <= float(self)

    def reserve(self, most: float) -> None:
        """Reserve the maximum cost of an answer, waiting for answers in flight if they may release enough.

        Raises CostError if the limit could be exceeded.
        """
        with self._changed:
            while self._under_way and not self.holds(self._reserved + most):
                self._changed.wait()
            if not self.holds(most):
                raise CostError(
                    f"${self.spent:.4f} spent, and the next answer may cost up to ${most:.4f}: this could exceed "
                    f"the limit of ${float(self):g} (max_cost). All answers so far are kept: run the same command "
                    "with a higher limit to resume",
                    again=True,
                )
            self._reserved += most
            self._under_way += 1

    def settle(self, reserved: float, cost: float) -> None:
        """Replace an answer's reservation by its actual cost."""
        with self._changed:
            self._under_way -= 1
            self._reserved = self._reserved - reserved if self._under_way else 0.0  # no rounding is left
            self.spent += cost
            self._changed.notify_all()

    def spend(self, cost: float) -> None:
        """Add a cost without a reservation."""
        with self._changed:
            self.spent += cost
