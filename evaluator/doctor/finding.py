"""What an examination finds, one line each."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from evaluator_serving.secrets import redacted

State = Literal["ok", "note", "warning", "broken"]
"""`note`: nothing is wrong, something more could be had. `warning`: it may go wrong. `broken`: what is needed doesn't work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: what it is about (`python`, `engine`, `gpu`, …); name: which one of several, by which `--need` asks for it.
        state: how it is.
        text: what was found.
        remedy: what to do, empty where all is well.
    """

    area: str
    name: str
    state: State
    text: str
    remedy: str = ""

    @property
    def works(self) -> bool:
        """Whether it is there and not known to be broken."""
        return self.state in ("ok", "warning")

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {name: redacted(text) for name, text in asdict(self).items()}

    def line(self) -> str:
        """`state  area name: text; remedy`."""
        subject = f"{self.area} {self.name}" if self.name and self.name != self.area else self.area
        return redacted(f"{self.state:8} {subject}: {self.text}" + (f"; {self.remedy}" if self.remedy else ""))
