"""Ports for servers that cannot be told to choose their own."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from subprocess import Popen
from typing import Any, Final

_READY_WITHIN: Final = 60.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different; below the range that connections take."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(listener.getsockname()[1])
    return found


def wait_until_it_listens(port: int, process: Popen[Any]) -> None:
    """Until a port takes connections; a server that ends instead fails the test."""
    deadline = time.monotonic() + _READY_WITHIN
    while True:
        assert process.poll() is None, f"the server ended ({process.returncode})"
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, f"nothing listens on {port}"
        time.sleep(0.02)


def end(process: Popen[Any]) -> None:
    """End a server that a test started, and reap it."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
