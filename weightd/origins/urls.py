"""Whom a URL asks, and where a redirect leads."""

from __future__ import annotations

import string
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from weightd.origins.reference import DEFAULT_PORTS, web_authority
from weightd.origins.speaking import Refused, printable
from weightd.origins.wire import Target


def target_of(parts: SplitResult) -> Target:
    """Whom a URL asks.  Raises ValueError."""
    web_authority(parts)
    host = (parts.hostname or "").rstrip(".")
    return Target(parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme])


def redirected(url: str, location: str) -> str:
    """Where a redirect leads.  Raises Refused where nobody is to be led."""
    if not location.isascii() or any(character in location for character in " \\\t"):
        location = quote(location, safe=string.punctuation.replace("\\", ""))
    leads_to = urljoin(url, location)
    parts = urlsplit(leads_to)
    if parts.scheme not in DEFAULT_PORTS:
        raise Refused(f"it redirects to {parts.scheme}:, which is no web address")
    if parts.scheme == "http" and urlsplit(url).scheme == "https":
        raise Refused(f"it redirects from https to http://{printable(parts.hostname or '', 100)}")
    if "@" in parts.netloc:
        raise Refused("it redirects to an address that carries a user or a password")
    return urlunsplit(parts._replace(fragment=""))
