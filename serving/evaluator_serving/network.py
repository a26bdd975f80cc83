"""How the environment says that other machines are reached: proxies, and the authorities that sign their certificates."""

import os
import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit

from evaluator_serving.errors import InputError

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of certificates; each library reads its own of them."""


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str | None:
    """The proxy through which the environment wants a URL to be reached (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY).

    None for none, and for this machine: a proxy could not reach it.
    """
    from requests.utils import get_environ_proxies, select_proxy

    if is_loopback(urlsplit(url).hostname):
        return None
    proxy: str | None = select_proxy(url, get_environ_proxies(url))
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


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
