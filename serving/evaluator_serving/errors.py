"""Errors that end a run early, by exit code."""

from evaluator_serving.secrets import redacted


class InputError(Exception):
    """The command or its input is invalid: exit code 2.

    The message is one line with the problem, its place and a remedy, without secrets (see `secrets`).
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class ModelError(InputError):
    """A model is inconsistent (for example a tokenizer with more tokens than embeddings), whatever the command.

    Other invalid input refuses the whole command before anything is loaded; this fails one model only.
    """


class MachineError(InputError):
    """A model is missing or different on the machine that should run it: this model fails until it is copied there."""


class NotNowError(InputError):
    """A resource is not available at the moment: a server that does not respond, a run locked by another process.

    Exit code 1: the same command may succeed later.
    """


def lasts(error: BaseException) -> bool:
    """Whether the error is permanent for the same command."""
    return isinstance(error, InputError) and not isinstance(error, NotNowError)


class UnreachedHubError(ModelError, NotNowError):
    """The Hub cannot be reached to identify a model: this model fails only."""


class EngineError(Exception):
    """An engine failed while scoring: exit code 1; stored answers are kept.

    `row` is the index, in the batch, of the row at fault, if known. `again` means that a retry may succeed, later or on another
    machine (out of memory).
    """

    def __init__(self, message: str, row: int | None = None, *, again: bool = False) -> None:
        super().__init__(redacted(message))
        self.row = row
        self.again = again


class FailingError(EngineError):
    """A server keeps failing at one request and answers others: the request is given up, but it is not invalid."""


class UnexpectedError(EngineError):
    """An unexpected exception of a library, as one line; its traceback may be useful."""


def in_words(error: BaseException) -> str:
    """One line that describes an error. Errors other than those above and the system's are called unexpected."""
    if isinstance(error, InputError | EngineError):
        return str(error)
    first = redacted((str(error).strip().splitlines() or [""])[0])
    return first if isinstance(error, OSError) and first else f"unexpected {type(error).__name__}: {first}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters: of a longer one whole words and an ellipsis."""
    text = (redacted(str(error)).strip().splitlines() or [type(error).__name__])[0]
    return text if len(text) <= 200 else f"{text[:198].rsplit(maxsplit=1)[0]} …"
