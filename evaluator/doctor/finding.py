"""The result of one check."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from evaluator_serving.secrets import redacted

State = Literal["ok", "note", "warning", "broken"]
"""`note`: optional and absent. `warning`: may cause a failure. `broken`: required and not working."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        area: subject of the check (`python`, `engine`, `gpu`, …).
        name: which of several in the area, for `--need`.
        state: the verdict.
        text: the facts.
        remedy: what to do; empty if nothing is to be done.
    """

    area: str
    name: str
    state: State
    text: str
    remedy: str = ""

    @property
    def works(self) -> bool:
        """Whether it is present and not broken."""
        return self.state in ("ok", "warning")

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {name: redacted(text) for name, text in asdict(self).items()}

    def line(self) -> str:
        """`state  area name: text; remedy`."""
        subject = f"{self.area} {self.name}" if self.name and self.name != self.area else self.area
        return redacted(f"{self.state:8} {subject}: {self.text}" + (f"; {self.remedy}" if self.remedy else ""))
