"""The service manager's part of socket activation: it listens, and passes what it listens on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.system.daemon import Daemon
from tests.system.nursery import HERE, bare_environment

_LAUNCH: Final = """
import os, sys
passed = [int(one) for one in sys.argv[1].split(",")]
# Past all of them first, so that none is overwritten before it is moved.
passed = [os.dup2(one, 100 + at) for at, one in enumerate(passed)]
for at, one in enumerate(passed):
    os.dup2(one, 3 + at)
    os.close(one)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "weightd", *sys.argv[2:]])
"""


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A unix socket at ``path``, as a .socket unit has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(os.fspath(path))
        door.listen(4096)
        yield door


@contextmanager
def activated(
    root: Path,
    sockets: Mapping[str, socket.socket],
    *,
    capacity: int,
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    where: Path | None = None,
) -> Iterator[Daemon]:
    """A daemon to which ``sockets`` were passed by their names, ready; killed at the end.

    ``where`` is what it is told in ``--socket``; by default its admin socket is nowhere else.
    """
    log = root.parent / "weightd.log"
    admin = sockets.get("admin")
    place = Path(admin.getsockname()) if admin is not None else root.parent / "own.sock"
    told = bare_environment() | dict(environ or {})
    told |= {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": ":".join(sockets)}
    numbers = [one.fileno() for one in sockets.values()]
    command = [sys.executable, "-c", _LAUNCH, ",".join(map(str, numbers)), "serve"]
    command += ["--root", str(root), "--capacity", str(capacity), "--min-free", "0"]
    command += ["--socket", str(where or place), "--listen", "none", *options]
    with ExitStack() as undo:
        sink = undo.enter_context(log.open("ab"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            env=told,
            cwd=HERE,
            pass_fds=numbers,
        )
        daemon = Daemon(root, place, log, process, started=time.monotonic())
        assert process.stdout is not None
        undo.callback(process.stdout.close)
        undo.callback(daemon.kill)
        daemon.wait_ready()
        yield daemon
