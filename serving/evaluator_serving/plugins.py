"""What other installed packages add to this program: entry points, found by group and imported one at a time.

One that can't be used is a line, and the others go on.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from evaluator_serving.errors import InputError, first_line


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed package: `package` is its name and version."""

    name: str
    package: str
    entry: EntryPoint

    def load(self) -> Any:
        """What it names. Raises InputError, in one line, for whatever goes wrong while it is imported."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise InputError(
                f"plug-in {self.name!r} of {self.package} can't be used ({type(error).__name__}: {first_line(error)}): "
                "mend or uninstall that package"
            ) from error


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plug-ins of a group by name, in alphabetical order, and a line on each that isn't among them."""

    found: dict[str, Plugin]
    refused: tuple[str, ...] = ()


def plugins(group: str, taken: Collection[str] = ()) -> Plugins:
    """The installed entry points of a group (`evaluator.engines`); nothing is imported.

    A name in `taken` (the program's own) stays what it is, and of two packages with one name the first in the alphabet has it.
    """
    found: dict[str, Plugin] = {}
    refused = []
    for plugin in sorted((_plugin(entry) for entry in entry_points(group=group)), key=lambda one: (one.name, one.package)):
        owner = "this program" if plugin.name in taken else found[plugin.name].package if plugin.name in found else None
        if owner is None:
            found[plugin.name] = plugin
        elif plugin.name in taken or found[plugin.name].entry.value != plugin.entry.value:
            refused.append(f"plug-in {plugin.name!r} of {plugin.package} is left out: {owner} has that name")
    return Plugins(found, tuple(refused))


def _plugin(entry: EntryPoint) -> Plugin:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    return Plugin(entry.name, package, entry)
