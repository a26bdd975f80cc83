"""How the environment says that other machines are reached: proxies, and the authorities that sign their certificates."""

import os
import re
import ssl
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from evaluator_serving.errors import InputError

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of certificates; each library reads its own of them."""


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, also as servers say that they listen on (0.0.0.0)."""
    name = (host or "").rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def proxy_for(url: str) -> str | None:
    """The proxy through which the environment wants a URL to be reached (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY).

    None for none, and for this machine: a proxy could not reach it.
    """
    from requests.utils import get_environ_proxies, select_proxy

    parts = urlsplit(url)
    if is_loopback(parts.hostname) or _spared(parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)):
        return None
    proxy: str | None = select_proxy(url, get_environ_proxies(url))
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _spared(host: str, port: int | None) -> bool:
    """Whether NO_PROXY names a host in a way that requests doesn't know: `*.name`, `host:port`, networks of IPv6."""
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
    """Let every library use the file of certificates that one of BUNDLES names."""
    if named := next((value for name in BUNDLES if (value := os.environ.get(name))), None):
        for name in BUNDLES:
            os.environ.setdefault(name, named)


def authorities() -> ssl.SSLContext | bool:
    """The certificates that the environment names, as a context; True for the usual ones. Raises InputError for none there."""
    for name in (*BUNDLES, "SSL_CERT_DIR"):
        if path := os.environ.get(name):
            try:
                if os.path.isdir(path):
                    return ssl.create_default_context(capath=path)
                return ssl.create_default_context(cafile=path)
            except (OSError, ssl.SSLError) as error:
                raise InputError(f"{name} names {path}, which holds no certificates ({error}): correct or unset it") from error
    return True


def passes(status: int) -> bool:
    """Whether the same request may not meet this HTTP status again a little later."""
    return status in (408, 409, 425, 429) or status >= 500


def certificate_remedy(error: object) -> str:
    """What to do where an error is that a certificate could not be verified; empty for others."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return ": name a file with the certificates of the authority that signed the server's or the proxy's in SSL_CERT_FILE"
