"""Addresses that no weights come from: where clouds hand out a machine's credentials.

A source, and whatever it redirects to, is refused when its name or an address
it resolves to is one of these.  What reaches the socket is an address that was
looked at here, so a name cannot resolve to another one in between.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_NAMES: Final = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
    }
)
_METADATA: Final = tuple(
    ip_network(text)
    for text in (
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure's host
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/32",  # Amazon, over IPv6
        "fd20:ce::/32",  # Google, over IPv6
        "fd00:42::42/128",  # Scaleway, over IPv6
    )
)
# The last 32 bits are the IPv4 address that a translator asks.
_NAT64: Final = IPv6Network("64:ff9b::/96")
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")
# Whoever runs such a translator chooses how much of it is the prefix (RFC 8215).
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")


def refusal(host: str) -> str | None:
    """Say why a host is not to be asked, going by its name or literal address alone."""
    name = host.lower().strip("[]").rstrip(".")
    if name in _NAMES:
        return f"{name} is a metadata service"
    address = _literal(name)
    return None if address is None else address_refusal(address)


def address_refusal(address: str) -> str | None:
    """Say why nothing is to be fetched from a numeric address, None when it may be."""
    found: IPv4Address | IPv6Address = ip_address(address)
    guessed: tuple[IPv4Address, ...] = ()
    if isinstance(found, IPv6Address):
        guessed = _possible(found)
        found = _embedded(found) or found
    for one in (found, *guessed):
        if one.is_link_local:
            return f"{address} is a link-local address"
        if any(one.version == network.version and one in network for network in _METADATA):
            return f"{address} is a metadata address"
    if found.is_multicast or found.is_unspecified:
        return f"{address} is no host's address"
    return None


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    compatible = int(address) >> 32 == 0 and int(address) > 1
    if compatible or address in _NAT64 or address in _TRANSLATED:
        return _bits(address, 96)
    return None


def _possible(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 one may stand for, by how the network there is made."""
    if address.teredo is not None:
        return address.teredo
    if address not in _LOCAL_NAT64:
        return ()
    # Bits 64 to 71 are left out of an address that would lie across them (RFC 6052).
    value = int(address)
    without = IPv6Address((value >> 64 << 64) | (value & (1 << 56) - 1) << 8)
    return *(_bits(without, start) for start in (48, 56, 64)), _bits(address, 96)


def _bits(address: IPv6Address, start: int) -> IPv4Address:
    """The 32 bits from ``start`` on, counted from the left."""
    return IPv4Address(int(address) >> (96 - start) & 0xFFFFFFFF)


def _literal(name: str) -> str | None:
    """The address that a name is in itself, in any form the resolver takes (``0xa9fea9fe``)."""
    try:
        return str(ip_address(name))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except (OSError, UnicodeError):
        return None
