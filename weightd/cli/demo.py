"""The worked example, happening: what `make run` shows.

Starts a daemon on a root of its own with a budget of 300 MB, and plays the
example of the README over its socket, at 1 MB for 1 GB.  Every answer is
checked, so that what is shown is what is true.  Then the daemon stays until
Ctrl-C.  Only the standard library is used, as any client could.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from weightd.cli.output import say
from weightd.units import format_bytes

MB: Final = 10**6
CAPACITY: Final = "300MB"
_CHUNK: Final = MB
_END_WITHIN: Final = 60.0
_UNLINKED_WITHIN: Final = 10.0
_LOOK_AGAIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Step:
    """One call, why it is made, and the status it must get; ``size`` of its body is in MB.

    ``done`` says what happened where the answer has no body to say it.
    """

    why: str
    method: str
    target: str
    expected: HTTPStatus
    size: int | None = None
    done: str = ""


def _put(why: str, key: str, size: int, expected: HTTPStatus = HTTPStatus.CREATED) -> Step:
    return Step(why, "PUT", f"/v1/models/{key}", expected, size)


def _get(why: str, key: str, expected: HTTPStatus = HTTPStatus.OK) -> Step:
    return Step(why, "GET", f"/v1/models/{key}", expected)


def _pin(why: str, holder: str, key: str) -> Step:
    return Step(why, "PUT", f"/v1/pins/{holder}/{key}", HTTPStatus.CREATED)


def _unpin(why: str, holder: str, key: str) -> Step:
    done = f"{holder} pins {key} no more"
    return Step(why, "DELETE", f"/v1/pins/{holder}/{key}", HTTPStatus.NO_CONTENT, done=done)


BLOCKED: Final = HTTPStatus.SERVICE_UNAVAILABLE
TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
MISS: Final = HTTPStatus.NOT_FOUND

STORY: Final = (
    _put("Put a model of 140.", "llama-70b", 140),
    _put("Put another of 90: both fit 300.", "mixtral", 90),
    _get("Use the first, so that the other is the longest unused.", "llama-70b"),
    _put("Put 145: mixtral has to go, and only mixtral.", "qwen-72b", 145),
    _get("Ask for it: a miss.", "mixtral", MISS),
    _pin("A replica pins llama-70b for its lifetime.", "replica-1", "llama-70b"),
    _put("Put 200: blocked, it says by whom, and nothing was evicted.", "big", 200, BLOCKED),
    _put("Put 400: too large for the whole budget, for ever.", "huge", 400, TOO_LARGE),
    _pin("A second replica pins llama-70b.", "replica-2", "llama-70b"),
    _unpin("The first lets go …", "replica-1", "llama-70b"),
    _put("… and 200 is still blocked, by the second.", "big", 200, BLOCKED),
    _unpin("The second lets go too …", "replica-2", "llama-70b"),
    _put("… and now room is made.", "big", 200),
    _put("Replace it with 200 others: the old one makes the room.", "big", 200),
    _pin("Pin what is there now …", "replica-3", "big"),
    _put("… and replace it with 90: the pinned one stays on disk.", "big", 90),
    _unpin("Its last pin goes, and so does it.", "replica-3", "big"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="weightd.cli.demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the example")
    once = parser.parse_args().once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="weightd-run-") as place:
            door = Path(place, "weightd.sock")
            with _daemon(Path(place, "cache"), door) as daemon:
                _tell(door)
                if not once:
                    say("\nThe daemon goes on; Ctrl-C ends it and removes what it made.")
                    say(f"Call it from another shell, with SOCKET={door}")
                    daemon.wait()
    except KeyboardInterrupt:
        say("\nended")
    except Unexpected as unexpected:
        print(f"weightd: {unexpected}", file=sys.stderr)
        return 1
    return 0


class Unexpected(Exception):
    """The daemon did something else than the example says."""


# -- The daemon --------------------------------------------------------------------


@contextmanager
def _daemon(root: Path, door: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a daemon until the end of the block; it answers when the block begins."""
    flags = [
        *("--root", str(root), "--socket", str(door)),
        *("--capacity", CAPACITY, "--min-free", "0"),
        *("--listen", "127.0.0.1:0", "--log-level", "error"),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHTD_")}
    say(f"$ weightd serve {' '.join(flags)}")
    # A session of its own: Ctrl-C is for this process, which then ends the daemon gracefully.
    with subprocess.Popen(
        [sys.executable, "-m", "weightd", "serve", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as daemon:
        try:
            _await_banner(daemon)
            yield daemon
        finally:
            daemon.terminate()
            daemon.wait(_END_WITHIN)


def _await_banner(daemon: subprocess.Popen[str]) -> None:
    """Pass the daemon's own words on until it has said how to try it: then it answers."""
    assert daemon.stdout is not None
    for line in daemon.stdout:
        say(line.removesuffix("\n"))
        if line.startswith("  try "):
            return
    raise Unexpected("the daemon did not start")


# -- The calls ---------------------------------------------------------------------


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_END_WITHIN)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _call(door: Path, method: str, target: str, size: int | None = None) -> tuple[int, Any]:
    """Make a call and answer its status and body; a body is sent only when it is asked for."""
    connection = _Connection(door)
    try:
        connection.putrequest(method, target)
        if size is not None:
            connection.putheader("Content-Length", str(size * MB))
            connection.putheader("Expect", "100-continue")
        connection.endheaders()
        if size is not None and _wanted(connection.sock):
            content = os.urandom(_CHUNK)
            for _ in range(size):
                connection.send(content)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None
    finally:
        connection.close()


def _wanted(peer: socket.socket) -> bool:
    """Whether the daemon asks for the body, as it does before the first byte of it is sent."""
    go_on = b"HTTP/1.1 100"
    return peer.recv(len(go_on), socket.MSG_PEEK | socket.MSG_WAITALL) == go_on


# -- What is shown -----------------------------------------------------------------


def _tell(door: Path) -> None:
    for number, step in enumerate(STORY, start=1):
        _play(number, step, door)
    _show_journal(door)


def _play(number: int, step: Step, door: Path) -> None:
    say(f"\n{number:>2}. {step.why}\n    $ {_as_curl(step)}")
    status, answer = _call(door, step.method, step.target, step.size)
    say(f"    {status} {_in_short(answer) or step.done}")
    say(f"    {_standing(door)}")
    if status != step.expected:
        raise Unexpected(f"step {number} was answered {status}, not {int(step.expected)}")


def _as_curl(step: Step) -> str:
    given = "curl --unix-socket $SOCKET"
    if step.size is not None:
        given += f" -T {step.size}MB.bin"
    elif step.method != "GET":
        given += f" -X {step.method}"
    return f"{given} http://localhost{step.target}"


def _in_short(answer: Any) -> str:
    if answer is None:
        return ""
    if "code" in answer:
        return f"{answer['code']}: {answer['detail']}"
    return f"{answer['key']} is at {answer['path']}"


def _standing(door: Path) -> str:
    """Used bytes, evictions, and what is here, after a step."""
    node = _settled(door)
    _, listing = _call(door, "GET", "/v1/models")
    used = f"used {format_bytes(node['used_bytes'])} of {format_bytes(node['capacity_bytes'])}"
    if doomed := node["doomed_bytes"]:
        used += f" ({format_bytes(doomed)} of it being unlinked)"
    here = ", ".join(f"{one['key']} {format_bytes(one['bytes'])}" for one in listing["models"])
    return f"{used}; evictions {node['evictions']}; here: {here}"


def _settled(door: Path) -> Any:
    """The status once evicted bytes have left the disk; an eviction is answered before that."""
    until = time.monotonic() + _UNLINKED_WITHIN
    while True:
        _, node = _call(door, "GET", "/v1/status")
        if not node["doomed_bytes"] or time.monotonic() > until:
            return node
        time.sleep(_LOOK_AGAIN)


def _show_journal(door: Path) -> None:
    _, journal = _call(door, "GET", "/v1/evictions")
    say("\nThe journal, `curl --unix-socket $SOCKET http://localhost/v1/evictions`:")
    for line in journal["evictions"]:
        say(f"    {line['key']} went for {line['beneficiary']} ({line['reason']})")


if __name__ == "__main__":
    sys.exit(main())
