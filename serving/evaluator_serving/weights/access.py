"""Access to the Hub, passed to processes on other machines: settings, cache folder, token, budget.

`huggingface_hub` reads its settings on import: call `use` before.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from evaluator_serving.weights.cache import BUDGET

SETTINGS = (
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HF_HUB_ETAG_TIMEOUT",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "HF_HUB_DISABLE_XET",
    "HF_XET_HIGH_PERFORMANCE",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_USER_AGENT_ORIGIN",
    BUDGET,
)
FOLDERS = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME")


@dataclass(frozen=True, slots=True)
class HubAccess:
    """Settings for access to the Hub.

    Attributes:
        settings: environment variables; a machine's own take precedence.
        folders: cache folders; used on machines that have them and set none of their own.
        token: used on machines without one; not shown in repr.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of_here(cls, weights_cache: int | None = None) -> Self:
        """This process's own, with a budget of so many bytes for weights on each machine (None: this process's)."""
        from huggingface_hub import get_token

        settings, folders = ({name: os.environ[name] for name in names if name in os.environ} for names in (SETTINGS, FOLDERS))
        budget = {BUDGET: str(weights_cache)} if weights_cache else {}
        return cls(settings | budget, folders, get_token())

    def use(self) -> None:
        """Apply the settings to this process, except where the machine has its own."""
        for name, value in self.settings.items():
            os.environ.setdefault(name, value)
        if not any(name in os.environ for name in FOLDERS):
            os.environ.update({name: folder for name, folder in self.folders.items() if os.path.isdir(folder)})
        if self.token:
            from huggingface_hub import get_token

            if get_token() is None:
                os.environ["HF_TOKEN"] = self.token
