"""Runs roc-validator without a network: the context of RO-Crate comes from the package `rocrate`.

    python validate_crate.py ARCHIVE SEVERITY

Prints a line for each check that fails.
"""

import io
import sys
from importlib.resources import files
from typing import Any

import requests

CONTEXT = "https://w3id.org/ro/crate/"


def send(_: Any, request: requests.PreparedRequest, **__: Any) -> requests.Response:
    """The context; nothing else can be reached."""
    if not str(request.url).startswith(CONTEXT):
        raise requests.ConnectionError(request.url)
    response = requests.Response()
    response.status_code, response.url, response.request = 200, str(request.url), request
    response.headers["Content-Type"] = "application/ld+json"
    response.raw = io.BytesIO((files("rocrate") / "data" / "ro-crate.jsonld").read_bytes())
    return response


requests.adapters.HTTPAdapter.send = send  # type: ignore[method-assign, assignment]

from rocrate_validator import models, services  # noqa: E402

settings = services.ValidationSettings(
    rocrate_uri=sys.argv[1],
    profile_identifier="ro-crate-1.2",
    requirement_severity=getattr(models.Severity, sys.argv[2]),
    skip_availability_check=True,
    no_cache=True,
)
result = services.validate(settings)
for issue in result.get_issues():
    print(issue.severity.name, issue.check.identifier, issue.violatingEntity, issue.message)
