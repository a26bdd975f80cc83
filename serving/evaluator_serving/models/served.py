"""Models that are only reachable by talking to them: `URL#NAME`, a server's base URL and the model's name there."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from evaluator_serving.errors import InputError
from evaluator_serving.models.config import UNLIMITED
from evaluator_serving.models.source import ModelSource, Served


def is_served(spec: str) -> bool:
    """Whether a spec names a model at a server."""
    return re.match(r"https?://", spec) is not None


def checked_host(url: str) -> str | None:
    """The host of a server's URL. Raises InputError where a user, a password or a query is in it, and doesn't show them."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.username or parts.password or parts.query:
        raise InputError(
            f"the URL of {parts.hostname} holds a user, a password or a query: leave it out, keys come from the environment "
            "(OPENAI_API_KEY)"
        )
    return parts.hostname


def served_source(spec: str) -> ModelSource:
    """The model that `URL#NAME` names: it has no tokenizer and no weights here, and answers chats alone.

    Raises InputError for a URL without a name, and for one with a password in it: what is written in a spec is written down.
    """
    address, _, name = spec.partition("#")
    if not (checked_host(address) and name.strip()):
        raise InputError(f"model {spec}: name the model too, URL#NAME, for example http://127.0.0.1:8000/v1#my-model")
    served = Served(address.rstrip("/"), name)
    return ModelSource(
        spec=spec,
        path=Path(),
        revision=f"served:{served.url}#{served.name}",
        heads=frozenset({"chat"}),
        config=None,
        context=UNLIMITED,
        served=served,
    )
