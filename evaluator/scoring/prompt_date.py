"""The date in a run's prompts where a chat template writes today's: one for the whole run, however often it is resumed."""

from datetime import UTC, datetime
from pathlib import Path

from evaluator.store.run import Run
from evaluator_serving.chats import Day
from evaluator_serving.errors import InputError


def prompt_date(out: Path, given: str | None) -> Day:
    """The date of the run at `out`: its recorded one, else that of its first command (older versions recorded none).

    Of a run that isn't there yet the given one, else today's (UTC). Raises InputError where another one is given than it has.
    """
    chosen = Day.chosen(given) if given else None
    if not (out / "run.json").is_file():
        return chosen or Day(datetime.now(UTC).date().isoformat())
    run = Run.open(out)
    if known := run.record.get("date"):
        day = Day(**known)
    else:
        first = next((attempt.get("time") for attempt in run.record["attempts"]), None)
        day = Day(str(first)[:10] if first else datetime.now(UTC).date().isoformat())
    if chosen not in (None, day):
        what = f"has the date {day.date}" if day.given else f"was made without --date (chat templates get {day.date})"
        raise InputError(f"{run.shown} {what}, now {given}: remove --date, or use another --out folder")
    return day
