"""The command line. Commands are imported only when they run, so that `--help` answers at once."""

import contextlib
import errno
import sys
import traceback
import warnings
from typing import Any

import click

from evaluator import __version__, logs
from evaluator.cli.lazy_group import LazyGroup
from evaluator.cli.output import sign_of_life, take_every_character
from evaluator_serving.errors import EngineError, InputError, UnexpectedError, in_words, lasts
from evaluator_serving.network import share_authorities

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("evaluator.cli.run:command", "Score models on tasks and print the table."),
    "sweep": ("evaluator.cli.sweep:command", "Score dozens of models, on one machine or a Ray cluster."),
    "plan": ("evaluator.cli.plan:command", "Estimate a sweep's memory, placement, time and cost."),
    "report": ("evaluator.cli.report:command", "Turn a run's scores into rates with confidence intervals."),
    "compare": ("evaluator.cli.compare:command", "Compare models on the same samples; check them before a release."),
    "leaderboard": ("evaluator.cli.leaderboard:command", "Rank the models of many runs on one page."),
    "validity": ("evaluator.cli.validity:command", "Correlate GEST with WinoBias over the models of a run."),
    "scores": ("evaluator.cli.scores:command", "Print a run's per-sample scores."),
    "samples": ("evaluator.cli.samples:command", "List the sentences that drive a rate, or on which two models differ."),
    "status": ("evaluator.cli.status:command", "Show a run's progress."),
    "engines": ("evaluator.cli.engines:command", "List the engines and their features."),
    "bench": ("evaluator.cli.bench:command", "Measure the throughput of engines on this hardware; compare measurements."),
    "doctor": ("evaluator.cli.doctor:command", "Check this installation and machine, and suggest fixes."),
    "probe": ("evaluator.cli.probe:command", "Print one model's probabilities of given words."),
    "tasks": ("evaluator.cli.tasks:command", "List the tasks: what they measure, data, settings."),
    "data": ("evaluator.cli.data:command", "List, fetch and check data sets."),
    "import": ("evaluator.cli.import_:command", "Import published score files as a run."),
    "translate": ("evaluator.cli.translate:command", "Translate GEST's sentences, plain and as gender pairs."),
    "gender": ("evaluator.cli.gender:command", "Detect the speaker's grammatical gender in sentences, one per line."),
    "new": ("evaluator.cli.new:command", "Write an example file: a task definition, samples, or a sweep."),
    "train-nsp": ("evaluator.cli.train_nsp:command", "Fine-tune a generative model as a next-sentence classifier."),
    "translate-dataset": ("evaluator.cli.translate_dataset:command", "Translate a data set into a new language."),
    "export-results": ("evaluator.cli.export_results:command", "Write a run's results for other programs."),
    "cite": ("evaluator.cli.cite:command", "Print BibTeX of a run's program, data sets and methods."),
    "archive": ("evaluator.cli.archive:command", "Package a run and its rates as one file (RO-Crate)."),
    "verify": ("evaluator.cli.verify:command", "Recompute an archive's rates and compare them."),
    "export": ("evaluator.cli.export:command", "Export a masked or generative model as ONNX graphs."),
}
"""Command name → (import path of its click.Command, one-line help)."""


class MainGroup(LazyGroup):
    """The program's commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Click's; an interruption goes to `main` as it is, before click writes an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.exceptions.Abort from error


@click.group(cls=MainGroup, table=COMMANDS, section="Commands", context_settings={"help_option_names": ["-h", "--help"]})
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


def _describe_error(error: Exception) -> tuple[str, int]:
    """One line on what went wrong and what to do, and the exit code: 2 for what the user can mend, else 1."""
    text = in_words(error)
    if isinstance(error, InputError | EngineError) and not isinstance(error, UnexpectedError):
        return text, 2 if lasts(error) else 1
    if not isinstance(error, OSError):
        return f"{text} (run with --debug for a traceback)", 1
    advice = "finished work is kept: run the same command again to resume"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error}: free some space; {advice}", 2
    if error.errno in _OF_PATHS:
        return f"{error}: check the path and its permissions; {advice}", 2
    return f"{error}: {advice}", 1


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
        code = _run_command(debug)
    sys.exit(code)


def _run_command(debug: bool) -> int:
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
        logs.say("interrupted: all finished work is kept; run the same command again to resume", "error")
        code = 130
    except Exception as error:
        if debug:
            logs.say("".join(traceback.format_exception(error)).rstrip(), "error")
        text, code = _describe_error(error)
        logs.say(f"evaluator: {text}", "error")
    return code if isinstance(code, int) else 0
