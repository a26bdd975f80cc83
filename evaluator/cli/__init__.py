"""The command line. Commands are imported only when they run, so that `--help` answers at once."""

import contextlib
import errno
import importlib
import sys
import traceback
import warnings
from typing import Any

import click

from evaluator import __version__, logs
from evaluator.cli.output import sign_of_life, take_every_character
from evaluator_serving.errors import EngineError, InputError, UnexpectedError, in_words, lasts
from evaluator_serving.network import share_authorities

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("evaluator.cli.run", "Score models on tasks and print the table."),
    "sweep": ("evaluator.cli.sweep", "Score dozens of models, on one machine or a Ray cluster."),
    "plan": ("evaluator.cli.plan", "Say what a sweep needs, how it is placed and how long it takes."),
    "report": ("evaluator.cli.report", "Turn a run's scores into rates with confidence intervals."),
    "compare": ("evaluator.cli.compare", "Compare models on the same samples; check them before a release."),
    "validity": ("evaluator.cli.validity", "Correlate GEST with WinoBias over the models of a run."),
    "scores": ("evaluator.cli.scores", "Print a run's per-sample scores."),
    "samples": ("evaluator.cli.samples", "List the sentences that drive a rate, or on which two models differ."),
    "status": ("evaluator.cli.status", "Say how far a run has come."),
    "engines": ("evaluator.cli.engines", "List what can run a model here, and what each can do."),
    "bench": ("evaluator.cli.bench", "Measure the throughput of engines on this hardware; compare measurements."),
    "doctor": ("evaluator.cli.doctor", "Check this installation and machine, and suggest fixes."),
    "probe": ("evaluator.cli.probe", "Ask one model for the probabilities of some words."),
    "tasks": ("evaluator.cli.tasks", "List the tasks: what they measure, data, settings."),
    "data": ("evaluator.cli.data", "List, fetch and check data sets."),
    "import": ("evaluator.cli.import_", "Make a run out of published score files."),
    "translate": ("evaluator.cli.translate", "Translate GEST's sentences, plain and as gender pairs."),
    "gender": ("evaluator.cli.gender", "Tell the first person's grammatical gender, a sentence a line."),
    "new": ("evaluator.cli.new", "Write an example of a definition, its samples, or a sweep."),
    "train-nsp": ("evaluator.cli.train_nsp", "Fine-tune a next-sentence classifier out of a generative model."),
    "translate-dataset": ("evaluator.cli.translate_dataset", "Make a data set in a new language."),
    "export-results": ("evaluator.cli.export_results", "Write a run's results for other programs."),
    "export": ("evaluator.cli.export", "Export a masked model as an ONNX graph for fast scoring."),
}
"""Command name to (module with a click.Command called `command`, one-line help)."""


class LazyGroup(click.Group):
    """A group whose commands are modules imported on demand; only their one-line helps are known beforehand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name`; None for an unknown name (Click then says so)."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Click's; an interruption goes to `main` as it is, before click writes an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.exceptions.Abort from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="evaluator")
@click.option("--debug", is_flag=True, help="Show tracebacks instead of one-line errors.")
def cli(debug: bool) -> None:
    """Measure stereotypes in language models at scale.

    \b
    Example:
      evaluator run gest-demo --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/demo
    """


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    logs.say(f"warning: {message}", "warning")


_OF_PATHS = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
}
"""Errors of the system that the same command meets again; a broken connection or a file server that is away may pass."""


def _told(error: Exception) -> tuple[str, int]:
    """One line on what went wrong and what to do, and the exit code: 2 for what the user can mend, else 1."""
    text = in_words(error)
    if isinstance(error, InputError | EngineError) and not isinstance(error, UnexpectedError):
        return text, 2 if lasts(error) else 1
    if not isinstance(error, OSError):
        return f"{text} (--debug shows where)", 1
    kept = "what was finished is kept, the same command goes on from there"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error}: free some space; {kept}", 2
    if error.errno in _OF_PATHS:
        return f"{error}: check the path and its permissions; {kept}", 2
    return f"{error}: {kept}", 1


def main() -> None:
    """Entry point: errors become one line on stderr and an exit code (1 engine, 2 input, 130 interrupted)."""
    debug = "--debug" in sys.argv
    if debug:  # allowed anywhere on the line, not only before the command
        sys.argv = [sys.argv[0], "--debug", *(a for a in sys.argv[1:] if a != "--debug")]
    warnings.showwarning = _warn
    with contextlib.ExitStack() as log:
        # Looked for before the rest of the line is read, in which something may be wrong.
        if logs.wants_json(sys.argv):
            from evaluator.foreign_lines import json_stderr

            logs.use("json")
            log.enter_context(json_stderr())
        take_every_character()
        share_authorities()
        code = _ended(debug)
    sys.exit(code)


def _ended(debug: bool) -> int:
    """Run the command, and tell how it ended. Returns the exit code."""
    try:
        with sign_of_life():
            code = cli(standalone_mode=False, prog_name="evaluator")
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # its message is the whole help
        code = 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        logs.say(f"evaluator: {' '.join(error.format_message().split())}{hint}", "error")
        code = 2
    except (KeyboardInterrupt, click.exceptions.Abort):
        if sys.stderr.isatty():
            click.echo(err=True)  # it has written ^C
        logs.say("interrupted: all finished work is kept; run the same command again to go on", "error")
        code = 130
    except Exception as error:
        if debug:
            logs.say("".join(traceback.format_exception(error)).rstrip(), "error")
        text, code = _told(error)
        logs.say(f"evaluator: {text}", "error")
    return code if isinstance(code, int) else 0
