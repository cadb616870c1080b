"""Daemons that are born of a process which has imported weightd already.

A start of `weightd serve` is most of a second of processor time, nearly all of
it imports, and the tests start hundreds.  The nursery imports the daemon once
and forks a process for each that is wanted, which then has a command line,
an environment and standard streams of its own, and is a child of the test's
process like any other: `weightd serve` in all but the imports.
That those are enough is shown by every daemon that is started by a command
(`tests.system.daemon.spawn` with a prefix, tests/daemon/test_start.py, tests/cli).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import weightd

HERE: Final = Path(weightd.__file__).parents[1]
WEIGHTD: Final = "weightd.cli.main:main"
IMPORTED: Final = ("weightd.cli.serve", "weightd.daemon")
"""What the command imports once it knows that it is to be the daemon."""

_MOST: Final = 1 << 16
"""Bytes of an order."""

_SET_CHILD_SUBREAPER: Final = 36
"""Linux's prctl(2): who inherits the orphans of its descendants."""


class Child:
    """A child that another process forked, with what the tests use of a `Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it is there."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and reap it.  Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks them.  It ends with the one that started it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._turn = threading.Lock()
        self._line, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd=HERE,
                env=dict(environ),
            )

    def spawn(
        self,
        entry: str,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        stderr: int,
    ) -> Child:
        """Start a process that calls ``entry`` (module:function) with its arguments.

        What the function answers is its exit status; its stdout is a pipe.
        """
        order = json.dumps([entry, list(arguments), dict(environ)]).encode()
        assert len(order) < _MOST
        ours, its = os.pipe()
        try:
            with self._turn, _inheriting_orphans():
                socket.send_fds(self._line, [order], [its, stderr])
                pid = int(self._line.recv(_MOST))
        finally:
            os.close(its)
        return Child(pid, os.fdopen(ours, "rb", buffering=0))


@functools.cache
def nursery() -> Nursery:
    """The one of this process."""
    return Nursery(bare_environment())


def bare_environment() -> dict[str, str]:
    """What a daemon under test is told by the environment of the tests."""
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


@contextmanager
def _inheriting_orphans() -> Iterator[None]:
    """While entered, a process whose parent has ended becomes a child of this one."""
    libc = ctypes.CDLL(None, use_errno=True)

    def inherit(whether: bool) -> None:
        if libc.prctl(_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")

    inherit(True)
    try:
        yield
    finally:
        inherit(False)


# -- In the nursery itself -----------------------------------------------------------


def main(line: socket.socket) -> int:
    """Fork what is ordered until nobody is there to order; in each of those, be that."""
    for module in IMPORTED:
        importlib.import_module(module)
    # What is here now is not written to by a collection in a child, so it stays shared.
    gc.freeze()
    while True:
        order, descriptors, _, _ = socket.recv_fds(line, _MOST, 2)
        if not order:
            return 0
        entry, arguments, environ = json.loads(order)
        module, _, function = entry.partition(":")
        # Imported here, it is here for the next one, too.
        be = getattr(importlib.import_module(module), function)
        if (pid := _fork_orphan()) == 0:
            line.close()
            _put_on(descriptors, environ)
            return be(arguments)  # type: ignore[no-any-return]
        for descriptor in descriptors:
            os.close(descriptor)
        line.send(str(pid).encode())


def _fork_orphan() -> int:
    """Fork a process whose parent has ended when this returns; its pid, and 0 in itself."""
    told, telling = os.pipe()
    parent = os.fork()
    if parent == 0:
        if pid := os.fork():
            os.write(telling, str(pid).encode())
            os._exit(0)
        os.close(told)
        os.close(telling)
        return 0
    os.close(telling)
    os.waitpid(parent, 0)
    with open(told, "rb", buffering=0) as reading:
        return int(reading.read(32) or b"")


def _put_on(descriptors: Sequence[int], environ: Mapping[str, str]) -> None:
    """Take standard streams and an environment of its own."""
    for stream, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    # The old ones remember whether what they wrote to was a file or a terminal.
    sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", errors=sys.stderr.errors, closefd=False, buffering=1)
    os.environ.clear()
    os.environ.update(environ)


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1]))))
