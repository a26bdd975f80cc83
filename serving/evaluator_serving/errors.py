"""The ways a run can stop early, as values the command line can tell apart."""

from evaluator_serving.secrets import redacted


class InputError(Exception):
    """The command or its input is wrong: exit code 2.

    The message is one line that says what is wrong, where, and what to do about it. No secret is in it (see `secrets`).
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class ModelError(InputError):
    """A model contradicts itself (a tokenizer with more tokens than embeddings, say): no other command would mend it.

    Other wrong input refuses the whole command before anything is loaded; this is one model's failure, the others go on.
    """


class MachineError(InputError):
    """A model isn't where it is to run, or is another one there: this model's failure, until somebody copies it."""


class NotNowError(InputError):
    """What the command needs can't be had at the moment: a server that doesn't answer, a run that another process writes.

    Exit code 1: the same command may succeed later, with nothing changed.
    """


def lasts(error: BaseException) -> bool:
    """Whether it is wrong input, which the same command meets again."""
    return isinstance(error, InputError) and not isinstance(error, NotNowError)


class UnreachedHubError(ModelError, NotNowError):
    """The hub doesn't say what a model is: this model's failure, the others go on."""


class EngineError(Exception):
    """An engine failed while it was scoring: exit code 1, everything already stored is kept.

    `row` is the index, in the batch given to the engine, of the one row at fault, where that is known; `again` says that it
    may well succeed another time or on another machine (there was no memory for it).
    """

    def __init__(self, message: str, row: int | None = None, *, again: bool = False) -> None:
        super().__init__(redacted(message))
        self.row = row
        self.again = again


class FailingError(EngineError):
    """A server goes on failing at one request and answers others: the request is given up, but nobody has called it wrong."""


class UnexpectedError(EngineError):
    """What a library threw, in a line: nobody has foreseen it, so where it was thrown may be of interest."""


def in_words(error: BaseException) -> str:
    """One line on what went wrong. An error of another kind than the above, or the system's, is called unexpected."""
    if isinstance(error, InputError | EngineError):
        return str(error)
    first = redacted((str(error).strip().splitlines() or [""])[0])
    return first if isinstance(error, OSError) and first else f"unexpected {type(error).__name__}: {first}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters."""
    text = redacted(str(error)).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:200]
