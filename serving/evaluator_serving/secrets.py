"""Redaction of keys and tokens in everything that is printed or written.

Servers may repeat a header in an error, libraries may show it in a traceback, and a command line may contain it.
"""

import os
import re

_NAMES = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|APIKEY|(?:^|_)(?:KEY|CREDENTIAL|SAS|PASS|PAT|CONNECTION_STRING))S?(?:_|$)",
    re.IGNORECASE,
)
"""Variables whose values are secret."""
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}"
    r"|(?i:(?<=bearer )|(?<=basic )|(?<=[?&]sig=)|(?<=-signature=)|(?<=-security-token=)|(?<=accountkey=))"
    r"[A-Za-z0-9._~%+/=-]{8,}"
    r"|(?i:(?<=http://)|(?<=https://))[^\s/\"<>]+(?=@)|(?<=://)[^\s/\"<>@:]*:[^\s/\"<>]+(?=@)"
)
"""What is secret by its looks: tokens that were read from a file, what follows in an Authorization header, what signs a URL;
who asks a proxy, a mirror or an index (user and password before the host; in `abfss://container@account` there is none)."""
SHORTEST = 8
"""Characters of a secret: shorter values stand in texts by chance."""
_named: set[str] = set()


def keep_secret(variable: str) -> None:
    """Treat the value of this environment variable as a secret, whatever its name."""
    _named.add(variable)


def redacted(text: str) -> str:
    """The text with each secret replaced by the name of its variable."""
    for name, value in _secrets():
        text = text.replace(value, f"[{name}]")
    return _SHAPES.sub("[secret]", text)


def _secrets() -> list[tuple[str, str]]:
    """Variables and their values, longest first, since one may contain another."""
    found = [
        (name, value)
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and (name in _named or _NAMES.search(name)) and not _is_path(value)
    ]
    return sorted(found, key=lambda pair: -len(pair[1]))


def _is_path(value: str) -> bool:
    """Whether the variable names a file, as GOOGLE_APPLICATION_CREDENTIALS does."""
    return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))
