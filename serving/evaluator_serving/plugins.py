"""Registries of what is imported when it is asked for: the program's own entries, and entry points of other packages.

A plug-in that cannot be used is one line of output, and the others go on.
"""

import contextlib
import gc
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from evaluator_serving.errors import InputError, first_line


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Look for no garbage while the body makes many objects that stay."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load_object(path: str) -> Any:
    """Import what `module:attribute` names. Raises ImportError or AttributeError where it is not there."""
    module, _, attribute = path.partition(":")
    with collection_paused():  # a sixth of the time
        return getattr(importlib.import_module(module), attribute)


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
                "repair or uninstall that package"
            ) from error


@dataclass(frozen=True, slots=True)
class Registry(Mapping[str, Any]):
    """Names → what they stand for, imported by `registry[name]`.

    A plug-in cannot take a name of the program's own; of two packages with one name the first in the alphabet has it.

    Attributes:
        own: the program's own: name → `module:attribute`.
        group: entry-point group of other packages' (`evaluator.engines`).
    """

    own: Mapping[str, str]
    group: str

    def __getitem__(self, name: str) -> Any:
        """Import an entry. Raises KeyError for an unknown name, InputError for a plug-in that cannot be imported."""
        return load_object(self.own[name]) if name in self.own else self.plugins[name].load()

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        yield from (*self.own, *self.plugins)

    def __len__(self) -> int:
        return len(self.own) + len(self.plugins)

    @property
    def plugins(self) -> dict[str, Plugin]:
        """The installed plug-ins by name, in alphabetical order; nothing is imported."""
        found: dict[str, Plugin] = {}
        for plugin in self._installed():
            if plugin.name not in self.own:
                found.setdefault(plugin.name, plugin)
        return found

    @property
    def refused(self) -> tuple[str, ...]:
        """A line on each plug-in whose name is taken."""
        owners = {name: (plugin.package, plugin.entry.value) for name, plugin in self.plugins.items()}
        owners |= dict.fromkeys(self.own, ("this program", ""))
        return tuple(
            f"plug-in {plugin.name!r} of {plugin.package} is ignored: {owner} has the same name"
            for plugin in self._installed()
            for owner, value in (owners[plugin.name],)
            if value != plugin.entry.value
        )

    def package_of(self, name: str) -> str:
        """The package, with its version, that an entry comes from; empty for the program's own."""
        plugin = self.plugins.get(name)
        return plugin.package if plugin else ""

    def _installed(self) -> list[Plugin]:
        return sorted(map(_plugin, entry_points(group=self.group)), key=lambda one: (one.name, one.package))


def _plugin(entry: EntryPoint) -> Plugin:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    return Plugin(entry.name, package, entry)
