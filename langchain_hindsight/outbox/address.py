"""Whom an entry is meant for: a server, and whose memory on it, told by the key.

An address is the server in one spelling and, where there is a key, its fingerprint behind a ``#``.
Entries are delivered by those who hold their address; an address can change (`readdress`), since a
server may move and a key may be replaced.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from langchain_hindsight.errors import ConfigurationError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_FINGERPRINT_BYTES = 6
"""Enough to tell keys apart, and too little to confirm a guess."""
_PURPOSE = b"hindsight-outbox"


@lru_cache(maxsize=64)
def server_of(url: str) -> str:
    """A server's URL in one spelling, whatever the spelling that it is given in.

    Case, a trailing slash or dot, the scheme's own port, credentials and the names of this machine
    (``localhost``, ``127.0.0.1``, ``[::1]``, ``0.0.0.0``) make no difference.

    Raises:
        ConfigurationError: If it is none.
    """
    parts = _split(url)
    host = (parts.hostname or "").rstrip(".")
    if _is_this_machine(host):
        host = "localhost"
    elif ":" in host:
        host = f"[{host}]"
    port = parts.port
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        msg = f"This is no URL of a server: {error}."
        raise ConfigurationError(msg) from None
    return parts


def address_of(url: str, key: str | None) -> str:
    """Whom entries are meant for that are written with a server's URL and a key, or none."""
    if not key:
        return server_of(url)
    print_ = blake2b(key.encode(), digest_size=_FINGERPRINT_BYTES, person=_PURPOSE)
    return f"{server_of(url)}#{print_.hexdigest()}"


def server_in(address: str) -> str:
    """The server of an address."""
    return address.partition("#")[0]


def moved(address: str, server: str) -> str:
    """The same holder's address on another server."""
    return server + address[len(server_in(address)) :]


def _is_this_machine(host: str) -> bool:
    try:
        found = ip_address(host)
    except ValueError:
        return host == "localhost"
    return found.is_loopback or found.is_unspecified
