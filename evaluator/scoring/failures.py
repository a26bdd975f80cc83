"""An error in one model fails that model; the others of the command continue. Also: how failures are recorded."""

import contextlib
import gc
import traceback
from collections.abc import Iterator, Mapping

from evaluator.store.errors import StoreError
from evaluator.store.run import Kind, Run
from evaluator_serving.errors import EngineError, InputError, MachineError, ModelError, in_words, lasts


class Failures(dict[str, Exception]):
    """Model name → the error that ended it."""

    @contextlib.contextmanager
    def of(self, name: str, *, refuse: bool = False) -> Iterator[None]:
        """Run the body. An error in it becomes this model's, and what its frames hold (weights) is freed.

        Raised instead: that the run's folder cannot be written, an interruption, and with `refuse` (nothing is loaded yet)
        invalid input, except errors of the model itself or of a missing machine.
        """
        try:
            yield
        except StoreError:
            raise
        except SystemExit as stop:  # of a library: this program's own code ends nothing so
            self[name] = EngineError(in_words(stop))
        except Exception as error:
            if refuse and isinstance(error, InputError) and not isinstance(error, ModelError | MachineError):
                raise
            self[name] = error
        if name in self:
            free(self[name])

    def combined(self) -> Exception:
        """One error with all messages: InputError if all of them are."""
        if len(self) == 1:
            return next(iter(self.values()))
        text = "; ".join(f"{name}: {in_words(error)}" for name, error in self.items())
        return InputError(text) if self.only_input else EngineError(text)

    @property
    def only_input(self) -> bool:
        """Whether there is nothing but wrong input, which the same command won't mend."""
        return all(map(lasts, self.values()))


def record_failures(run: Run, errors: Mapping[str, Exception]) -> None:
    """Write down which models failed as a whole, and why."""
    for name, error in errors.items():
        kind: Kind = "unaskable" if isinstance(error, ModelError) and lasts(error) else "retryable"
        run.add_new_failures([(name, "", in_words(error))], kind)


def failure_kind(error: EngineError) -> Kind:
    """The kind of what befell a request that was tried alone."""
    return "retryable" if error.again else "poisonous"


def free(error: BaseException) -> None:
    """Empty the frames of an error and of those behind it: they hold the engine, and the next model needs the memory."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is not None and one not in seen:
            seen.append(one)
            traceback.clear_frames(one.__traceback__)
            queue += [one.__cause__, one.__context__]
    gc.collect()
