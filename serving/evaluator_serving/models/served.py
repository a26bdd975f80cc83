"""Models that are only reachable by talking to them: `URL#NAME`, a server's base URL and the model's name there."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from evaluator_serving.errors import InputError
from evaluator_serving.models.config import UNLIMITED
from evaluator_serving.models.source import ModelSource, Served


def is_served(spec: str) -> bool:
    """Whether a spec names a model at a server."""
    return re.match(r"https?://", spec) is not None


def checked_host(url: str) -> str | None:
    """The host of a server's URL. Raises InputError for a port that is none, and where a user, a password or a query is in
    it, which it doesn't show.

    Azure's classic URLs have a query that tells no secret, `api-version`.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.username or parts.password or not re.fullmatch(r"(api-version=[\w.-]+)?", parts.query, re.ASCII):
        raise InputError(
            f"the URL of {parts.hostname} contains a user, a password or a query: remove it; keys come from the environment "
            "(OPENAI_API_KEY, or others with --extra header=NAME=VARIABLE)"
        )
    try:
        _ = parts.port
    except ValueError as error:
        raise InputError(f"the URL {url} has an invalid port ({error}): correct it") from error
    return parts.hostname


def served_source(spec: str) -> ModelSource:
    """The model that `URL#NAME` names: it has no tokenizer and no weights here, and answers chats alone.

    Azure's classic URLs (…/deployments/NAME/chat/completions?api-version=…) say it without `#NAME`, too.
    Raises InputError for a URL without a name, and for one with a password in it: what is written in a spec is written down.
    """
    address, _, name = spec.partition("#")
    host = checked_host(address)
    parts = urlsplit(address if host else "")
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    address = urlunsplit(parts._replace(path=path))
    deployment = re.search(r"/deployments/([^/]+)$", path)
    if deployment and not name.strip():
        name = unquote(deployment[1])
    if not (host and name.strip()):
        raise InputError(f"model {spec}: name the model too, URL#NAME, for example http://127.0.0.1:8000/v1#my-model")
    served = Served(address, name)
    return ModelSource(
        spec=spec,
        path=Path(),
        revision=f"served:{served.url}#{served.name}",
        heads=frozenset({"chat"}),
        config=None,
        context=UNLIMITED,
        served=served,
    )
