"""Telling systemd: a datagram to the socket it names."""

from __future__ import annotations

import os
import socket
import time


def notify(*words: str) -> None:
    """Say ``READY=1``, ``STATUS=…``, ``WATCHDOG=1``, …; without systemd this does nothing.

    Whether the message arrives is the service manager's affair: a daemon that
    works does not stop, nor wait, because nobody listens.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            channel.sendto("\n".join(words).encode(), address)
    except OSError:
        return


def extended(seconds: float) -> str:
    """Ask for so many seconds more to start or to stop, counted from now."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"


def reloading() -> str:
    """Say that the settings are being read; the next ``READY=1`` ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
