"""The proxy that the environment names for a host, as curl and most clients read it.

``http_proxy``, ``https_proxy`` and ``all_proxy`` in lower or upper case, and
``no_proxy`` with names, their subdomains, ports, addresses, networks and ``*``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where to ask instead.  ``authorization`` is the value of Proxy-Authorization."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy to ask for a host, None to ask it directly.

    Raises ValueError, without the address, for one that cannot be used.
    """
    named = _variable(environ, f"{scheme}_proxy") or _variable(environ, "all_proxy")
    if not named or _excluded(host, port, _variable(environ, "no_proxy")):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"the proxy for {scheme} is no http://host:port")
    authorization = None
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(login.encode()).decode()
    return Proxy(parts.hostname, parts.port or 80, authorization)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper(), "")


def _excluded(host: str, port: int, no_proxy: str) -> bool:
    return any(
        _covers(entry.strip().lower(), host.lower(), port)
        for entry in no_proxy.split(",")
        if entry.strip()
    )


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether one entry of ``no_proxy`` means the host."""
    if entry == "*":
        return True
    try:
        # A literal address is covered by its network only.
        return ip_address(host.strip("[]")) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdigit():
        if int(digits) != port:
            return False
        entry = name
    entry = entry.removeprefix("*").lstrip(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
