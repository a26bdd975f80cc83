"""The two ways a run can stop early, as values the command line can tell apart."""


class InputError(Exception):
    """The command or its input is wrong: exit code 2.

    The message is one line that says what is wrong, where, and what to do about it.
    """


class EngineError(Exception):
    """An engine failed while it was scoring: exit code 1, everything already stored is kept.

    `row` is the index, in the batch given to the engine, of the one row at fault, where that is known.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row
