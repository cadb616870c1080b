"""Telling systemd: a datagram to the socket it names."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Say ``READY=1`` or ``STOPPING=1``; without systemd this does nothing.

    Whether the message arrives is the service manager's affair: a daemon that
    works does not stop because nobody listens.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), address)
        except OSError:
            return
