"""A disk with a write cache that a power cut empties.

Killing an emulator loses the machine's memory, and with it what was written to a
file and not flushed.  It does not lose what the kernel had passed on to the disk
by then: a host's page cache outlives the emulator.  A real disk keeps that in a
cache of its own until it is told to flush, and loses any of it when the power
goes.  So the disk is served from here, over NBD on a unix socket: a write goes to
what the machine sees, a flush makes those before it stable, and after a cut each
write that was not flushed is there or is not, as the seed has it.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path
from typing import Final

_GREETING: Final = struct.pack(">8s8sH", b"NBDMAGIC", b"IHAVEOPT", 1)
_OPTION: Final = struct.Struct(">8sII")
_OPTION_REPLY: Final = struct.Struct(">QIII")
_OPTION_REPLY_MAGIC: Final = 0x3E889045565A9
_GO: Final = 7
_ACKNOWLEDGED: Final = 1
_INFORMATION: Final = 3
_UNSUPPORTED: Final = (1 << 31) + 1
_FLAGS: Final = 1 | 1 << 2
"""There are flags, and there is a flush."""

_REQUEST: Final = struct.Struct(">IHHQQI")
_REPLY: Final = struct.Struct(">IIQ")
_REPLY_MAGIC: Final = 0x67446698
_READ, _WRITE, _DISCONNECT, _FLUSH = range(4)
_INVALID: Final = 22


class VolatileDisk:
    """The file ``stable``, behind a cache, for one life of one machine.

    ``flushing`` False is a disk that says it flushed, and keeps nothing.  A thread
    serves it until `cut`, which must be called.
    """

    def __init__(self, stable: Path, *, flushing: bool = True) -> None:
        self._stable = stable
        self._seen = stable.with_suffix(".seen")
        self._flushing = flushing
        self._cached: list[tuple[int, bytes]] = []
        self.address = stable.with_suffix(".sock")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.address.unlink(missing_ok=True)
        self._listener.bind(os.fspath(self.address))
        self._listener.listen(1)
        _copy(stable, self._seen)
        self._writes_left: int | None = None
        self._hung = threading.Event()
        self._gone = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="disk")
        self._thread.start()

    def hang(self, writes: int, within: float) -> None:
        """Take so many writes more and answer nothing from then on; returns then.

        A flush is short, so that at most instants nothing is cached; now something is.
        A machine that writes no more for ``within`` seconds is left as it is.
        """
        self._writes_left = writes
        self._hung.wait(within)

    def cut(self, source: random.Random) -> tuple[int, int]:
        """Lose all, half or none of what is cached; how many writes that was, and how many went.

        The machine is gone by now.  Raises what went wrong with the disk itself.
        """
        self._gone.set()
        # Wakes an accept as well, when the machine never came.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.address.unlink()
        self._seen.unlink()
        if self._failure is not None:
            raise self._failure
        share = source.choice((0.0, 0.5, 1.0)) if self._flushing else 0.0
        kept = [one for one in self._cached if source.random() < share]
        self._write(kept)
        return len(self._cached), len(self._cached) - len(kept)

    def _run(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the machine never came
        descriptor = os.open(self._seen, os.O_RDWR)
        try:
            with peer:
                self._greet(peer)
                while self._serve(peer, descriptor):
                    pass
        except (EOFError, ConnectionError):
            return  # the machine is gone, in the middle of a request
        except BaseException as failure:  # noqa: BLE001 - whoever cuts the power raises it
            self._failure = failure
        finally:
            os.close(descriptor)

    def _greet(self, peer: socket.socket) -> None:
        peer.sendall(_GREETING)
        _take(peer, 4)
        while True:
            _, option, length = _OPTION.unpack(_take(peer, _OPTION.size))
            _take(peer, length)
            if option != _GO:
                peer.sendall(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, _UNSUPPORTED, 0))
                continue
            size = self._stable.stat().st_size
            export = struct.pack(">HQH", 0, size, _FLAGS)
            for kind, what in ((_INFORMATION, export), (_ACKNOWLEDGED, b"")):
                head = _OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, kind, len(what))
                peer.sendall(head + what)
            return

    def _serve(self, peer: socket.socket, descriptor: int) -> bool:
        """Do one request; False when there will be no other.  One at a time, in their order."""
        _, _, kind, cookie, offset, length = _REQUEST.unpack(_take(peer, _REQUEST.size))
        error, answer = 0, b""
        if kind == _READ:
            answer = os.pread(descriptor, length, offset)
        elif kind == _WRITE:
            data = _take(peer, length)
            os.pwrite(descriptor, data, offset)
            self._cached.append((offset, data))
            if self._last_write():
                return False
        elif kind == _FLUSH:
            self._flush()
        elif kind == _DISCONNECT:
            return False
        else:
            error = _INVALID
        peer.sendall(_REPLY.pack(_REPLY_MAGIC, error, cookie) + answer)
        return True

    def _last_write(self) -> bool:
        """Whether the disk hangs by now; then the machine is gone as well."""
        if self._writes_left is None:
            return False
        self._writes_left -= 1
        if self._writes_left > 0:
            return False
        self._hung.set()
        self._gone.wait()
        return True

    def _flush(self) -> None:
        if self._flushing:
            self._write(self._cached)
            self._cached.clear()

    def _write(self, writes: list[tuple[int, bytes]]) -> None:
        with self._stable.open("r+b") as file:
            for offset, data in writes:
                file.seek(offset)
                file.write(data)


def _take(peer: socket.socket, length: int) -> bytes:
    """Exactly so many bytes.  Raises EOFError when the machine is gone."""
    taken = bytearray()
    while len(taken) < length:
        more = peer.recv(length - len(taken))
        if not more:
            raise EOFError
        taken += more
    return bytes(taken)


def _copy(file: Path, copy: Path) -> None:
    """Copy a file that is mostly holes."""
    copy.unlink(missing_ok=True)
    program = shutil.which("cp")
    assert program is not None
    subprocess.run([program, "--sparse=always", str(file), str(copy)], check=True)
