"""Network settings from the environment: proxies and certificate authorities."""

import os
import re
import ssl
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from evaluator_serving.errors import InputError

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of certificates; each library reads its own of them."""


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, including 0.0.0.0."""
    name = (host or "").rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def proxy_for(url: str) -> str | None:
    """The proxy for a URL from the environment (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY).

    None without a proxy, and for this machine.
    """
    from requests.utils import get_environ_proxies, select_proxy

    parts = urlsplit(url)
    if is_loopback(parts.hostname) or _spared(parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)):
        return None
    proxy: str | None = select_proxy(url, get_environ_proxies(url))
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _spared(host: str, port: int | None) -> bool:
    """Whether NO_PROXY matches a host in forms that requests does not support: `*.name`, `host:port`, IPv6 networks."""
    for entry in re.split(r"[\s,]+", os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""):
        try:
            if ip_address(host) in ip_network(entry.strip("[]"), strict=False):
                return True
        except ValueError:
            name, _, wanted = entry.lower().rpartition(":")
            name, wanted = (name.strip("[]"), wanted) if wanted.isdecimal() else (entry.lower().strip("[]"), str(port))
            bare = name.removeprefix("*").removeprefix(".")
            if bare and wanted == str(port) and (host == bare or host.endswith(f".{bare}")):
                return True
    return False


def share_authorities() -> None:
    """Let every library use the certificate file named by one of BUNDLES."""
    if named := next((value for name in BUNDLES if (value := os.environ.get(name))), None):
        for name in BUNDLES:
            os.environ.setdefault(name, named)


def authorities() -> ssl.SSLContext | bool:
    """The certificates named by the environment as an SSL context; True for the default ones. Raises InputError if there are
    none."""
    for name in (*BUNDLES, "SSL_CERT_DIR"):
        if path := os.environ.get(name):
            try:
                if os.path.isdir(path):
                    return ssl.create_default_context(capath=path)
                return ssl.create_default_context(cafile=path)
            except (OSError, ssl.SSLError) as error:
                raise InputError(
                    f"{name} names {path}, which contains no certificates ({error}): correct or unset it"
                ) from error
    return True


def passes(status: int) -> bool:
    """Whether this HTTP status may be transient."""
    return status in (408, 409, 425, 429) or status >= 500


def certificate_remedy(error: object) -> str:
    """The remedy for an error of certificate verification; empty for other errors."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return ": set SSL_CERT_FILE to a file with the certificates of the authority that signed the server's or the proxy's"
