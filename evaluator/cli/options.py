"""Options that several commands share."""

import functools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from evaluator import logs
from evaluator.store.remote import run_folder
from evaluator.vocabulary import Interval, Scale
from evaluator_serving.engine import BYTES
from evaluator_serving.errors import InputError
from evaluator_serving.registry import ENGINES
from evaluator_serving.thoughts import CHOICE
from evaluator_serving.weights.cache import parse_size

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def calls(function: str) -> Callable[[click.Command], click.Command]:
    """Say which function (`module:name`) a command calls with its options as arguments."""

    def mark(command: click.Command) -> click.Command:
        setattr(command, CALLS, function)
        return command

    return mark


CALLS = "calls"
"""Attribute of a command: see `calls`."""


class RunFolder(click.Path):
    """A run's folder, or its URL on object storage: gives the folder that this process works in, holding what is stored now."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """See `run_folder`; wrong and unreachable URLs raise InputError."""
        return run_folder(value)


FORMATS = ("table", "csv", "json", "markdown", "latex", "latex-long", "html")
"""Formats of a report and of a comparison."""
RUN = RunFolder(path_type=Path)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")


class LocalPath(click.Path):
    """A file or folder of this machine: a URL is refused, which would be a folder called `s3:` here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click's."""
        if _URL.match(str(value)):
            self.fail(f"{value} is a URL: only runs can be on object storage; give a local file or folder", param, ctx)
        return super().convert(value, param, ctx)


sweep_data_option: Decorator = click.option(
    "--data",
    "data",
    type=LocalPath(path_type=Path, file_okay=False),
    help="Folder that holds the public data sets (default: as in the file, else EVALUATOR_DATA, else the cache of "
    "`evaluator data fetch`).",
)

data_option: Decorator = click.option(
    "--data",
    "data",
    type=LocalPath(path_type=Path, file_okay=False),
    envvar="EVALUATOR_DATA",
    help="Folder that holds the public data sets (default: EVALUATOR_DATA, else the cache of `evaluator data fetch`).",
)

figures_option: Decorator = click.option(
    "--figures",
    type=LocalPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write each figure to this folder as SVG, PNG and CSV.",
)


def beside_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--published and --beside: references that are shown beside a run's models."""
    published = click.option(
        "--published",
        is_flag=True,
        help="Show published models beside the run's (see `evaluator data fetch published`); no test includes them.",
    )
    runs = click.option(
        "--beside", multiple=True, type=RUN, metavar="RUN", help="Show this run's models in the same way; repeatable."
    )
    return published(runs(command))


def finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of a number's option: `nan` and `inf` are numbers to Python and nonsense here."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", context, parameter)
    return value


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Callback of an option that is a number of bytes: 500GB."""
    if value is None:
        return None
    try:
        return parse_size(value)
    except InputError as error:
        raise click.BadParameter(str(error), context, parameter) from error


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that is a length of time: 90s, 10m, 2h. Returns seconds."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a duration: write 90s, 10m or 2h", context, parameter)
    return float(found[1]) * SECONDS[found[2]]


def address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Callback of an option that says where to listen: PORT (on this machine only) or HOST:PORT."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536 or (":" in value and not host):
        raise click.BadParameter(f"{value!r} is not a port: write 9400, or 0.0.0.0:9400 for other machines", context, parameter)
    return host.strip("[]") or "127.0.0.1", int(port)


def watching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--metrics-port and --log-format, for commands that score."""
    metrics = click.option(
        "--metrics-port",
        "metrics",
        metavar="[HOST:]PORT",
        callback=address,
        help="Serve Prometheus metrics at this address during the run (default host: 127.0.0.1). With Ray, its "
        "metrics exporter has them as well.",
    )
    format_ = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=lambda context, parameter, value: logs.use(value),
        is_eager=True,
        expose_value=False,
        help="json: one object per line on stderr, with time, level, message, run, model, replica, chunk.",
    )
    return metrics(format_(command))


pickle_option: Decorator = click.option(
    "--allow-pickle", is_flag=True, help="Allow pickled weights (.bin), which can execute code."
)


code_option: Decorator = click.option(
    "--trust-remote-code", is_flag=True, help="Run code from the model's repository with your permissions."
)


def leaving_out_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--strict and --retry, for commands that score."""
    strict = click.option(
        "--strict", is_flag=True, help="End with an error if a model cannot score a sample, instead of skipping it."
    )
    retry = click.option("--retry", is_flag=True, help="Send requests again that failed at every attempt.")
    return strict(retry(command))


def _thinking(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(CHOICE, value):
        raise click.BadParameter(f"{value!r} is not on, off or a level such as low", context, parameter)
    return value


thinking_option: Decorator = click.option(
    "--thinking",
    metavar="on|off|LEVEL",
    callback=_thinking,
    help="Whether a model thinks before it answers (enable_thinking of its chat template), or how hard (reasoning_effort: "
    "low, high, …).",
)


def date_option(help_: str) -> Decorator:
    """--date; it is checked where it is used."""
    return click.option("--date", metavar="YYYY-MM-DD", help=help_)


no_verify_option: Decorator = click.option(
    "--no-verify",
    "verify",
    is_flag=True,
    callback=lambda context, parameter, value: not value,
    help="Don't compare engines with the transformers engine when they are loaded.",
)


def asking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--max-cost, --system, --thinking and --date: what answers of chat models may cost, and how they are asked."""
    cost = click.option(
        "--max-cost",
        type=click.FloatRange(min=0),
        callback=finite,
        metavar="DOLLARS",
        help="Stop before the answers of this command cost more in total (needs --extra prompt_price=… and answer_price=…).",
    )
    system = click.option(
        "--system",
        "systems",
        multiple=True,
        metavar="[NAME=]TEXT|FILE",
        help="System prompt, or `none`; repeatable: every model is scored under each, in its chat template.",
    )
    date = date_option("Date that chat templates insert as today's [the day on which the run was created].")
    return cost(system(thinking_option(date(command))))


encoding_option: Decorator = click.option(
    "--encoding",
    metavar="NAME",
    help="Encoding of custom samples or translations, if not UTF-8 or UTF-16 with a byte-order mark: cp1250, …",
)


class ParametersCommand(click.Command):
    """A command with a flag for each parameter of the tasks, besides its own; it gets those that are given by their names."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own, the tasks', and --help."""
        *own, help_ = super().get_params(ctx)
        if (made := ctx.meta.get(__name__)) is None:  # click asks several times
            made = ctx.meta[__name__] = parameter_options()
        return [*own, *made, help_]

    def invoke(self, ctx: click.Context) -> Any:
        """Click's, without the parameters that are not given; a mistake in a parameter names its flag."""
        from evaluator.tasks import known_parameters
        from evaluator.tasks.parameters import ParameterError, as_flag

        absent = {key for key in known_parameters() if ctx.params.get(key) in (None, ())}
        ctx.params = {key: value for key, value in ctx.params.items() if key not in absent}
        try:
            return super().invoke(ctx)
        except ParameterError as error:
            raise InputError(error.spelled(as_flag)) from error


def parameter_options() -> list[click.Option]:
    """An option for each parameter that is chosen before models are asked, of the known tasks and installed plug-ins.

    Values are checked by the task that takes them, as those of SWEEP.toml and of Python are.
    """
    from evaluator.tasks import known_parameters

    return [_parameter_option(key, uses) for key, uses in known_parameters().items()]


def _parameter_option(key: str, uses: Sequence[tuple[str, "FieldInfo"]]) -> click.Option:
    from evaluator.tasks.parameters import as_flag, default_of, is_list, kind_of, limits

    field = uses[0][1]
    about = " ".join(dict.fromkeys(field.description or "" for _, field in uses))
    default = f"default: {default_of(field)}" if default_of(field) else ""
    tasks = ", ".join(task for task, _ in uses)
    return click.Option(
        [as_flag(key, field, None), key],
        multiple=is_list(field),
        metavar=kind_of(field),
        help=f"{about} [{'; '.join(part for part in (tasks, limits(field), default) if part)}]",
    )


def extra_option(help_: str) -> Decorator:
    """--extra KEY=VALUE, as a mapping."""
    take: Any = lambda context, parameter, value: key_values(value)  # noqa: E731
    return click.option("--extra", multiple=True, metavar="KEY=VALUE", callback=take, help=help_)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--engine, --dtype, --device, --chat-template, --batch-tokens and --extra, for commands that load a model."""
    for option in (
        extra_option("Engine-specific option; may be repeated."),
        click.option("--batch-tokens", type=click.IntRange(min=1), help="Maximum number of padded tokens per forward batch."),
        click.option(
            "--chat-template",
            type=click.Choice(["none", "user"]),
            default="none",
            show_default=True,
            help="`user`: the prompt becomes the beginning of the assistant's turn.",
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, …"),
        click.option(
            "--dtype",
            type=click.Choice(list(BYTES)),
            default="float32",
            show_default=True,
            help="Precision of the weights and the arithmetic.",
        ),
        click.option(
            "--engine",
            default="auto",
            show_default=True,
            metavar="NAME",
            help=f"Engine: auto, {', '.join(ENGINES.own)}, a plug-in (see `evaluator engines`), or module:Class.",
        ),
    ):
        command = option(command)
    return command


def tracker(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of --log-to: a tracker whose package isn't installed is refused before anything is scored."""
    if value is not None:
        from evaluator.trackers import check_tracker

        check_tracker(value)
    return value


log_option: Decorator = click.option(
    "--log-to",
    type=click.Choice(["mlflow", "wandb", "trackio"]),
    callback=tracker,
    help="Also send parameters, rates, figures and record to this tracker (its package must be installed).",
)


def rates_options(command: Callable[..., Any], *, tasks: bool = True) -> Callable[..., Any]:
    """How rates are computed: --scale, --interval, --resamples, --seed and --set; and of which `tasks`: --task."""
    only = click.option("--task", "tasks", multiple=True, metavar="T", help="Only this task; may be repeated.")
    options: Sequence[Decorator] = (
        click.option(
            "--scale",
            type=click.Choice(get_args(Scale)),
            default="ratio",
            show_default=True,
            help="ratio: true probability ratios; published: as the papers print them (a power of 1/ln 10); log10: log "
            "differences; eurogest: EuroGEST's own.",
        ),
        click.option(
            "--interval",
            type=click.Choice(get_args(Interval)),
            default="percentile",
            show_default=True,
            help="Kind of 95% interval: a bootstrap, Wilson's for shares; published: normal fit, Agresti-Coull for shares.",
        ),
        click.option("--resamples", type=click.IntRange(min=1), default=1000, show_default=True, help="Bootstrap resamples."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resampling."),
        *([only] if tasks else []),
        click.option(
            "--set",
            "--extra",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            callback=lambda context, parameter, value: key_values(value, "--set"),
            help="A task's report setting (listed by `evaluator tasks`).",
        ),
    )
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


def key_values(items: tuple[str, ...], option: str = "--extra") -> dict[str, str]:
    """The pairs of a repeated `--extra KEY=VALUE`, or of another option. Raises InputError for one without `=`."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            example = "url=http://127.0.0.1:8000/v1" if option == "--extra" else "case=orig"
            raise InputError(f"{option} {item!r} is not KEY=VALUE: write for example {option} {example}")
        pairs[key] = value
    return pairs
