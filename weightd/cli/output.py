"""Saying lines to whoever reads them, if anybody does."""

from __future__ import annotations

import io
import os
import sys

_STDOUT, _STDERR = 1, 2


class Unwritable(Exception):
    """The output cannot be written; the message says why."""


def say(lines: str) -> None:
    """Print at once; that nobody reads on is no reason to fail, least of all a daemon's.

    Raises Unwritable.
    """
    try:
        print(lines, flush=True)
    except BrokenPipeError:
        nobody_reads()
    except OSError as error:
        nobody_reads()
        raise Unwritable(error.strerror) from error


def say_json(document: object) -> None:
    """Print what the daemon answered, for a program to read."""
    import json

    # In ASCII: whole in whatever the locale can write.
    say(json.dumps(document, indent=2))


def note(line: str, priority: str = "") -> None:
    """Say something beside the answer, in one line, where anybody can be told.

    ``priority`` is what the journal takes off its beginning.
    """
    from weightd.cli.terminal import visible

    # print takes None for the other one.
    if sys.stderr is None:
        return
    try:
        print(f"{priority}weightd: {visible(line)}", file=sys.stderr, flush=True)
    except OSError:
        # The exit code says as much.
        return


def nobody_reads() -> None:
    """After a broken pipe: what is buffered is flushed at the end, which must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def stand_in_for_closed() -> None:
    """Open standard streams that are closed, on nothing.

    What is opened next would have their numbers, and get what is meant for them.
    """
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(nowhere, True)
    os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = _stream(_STDOUT)
    if sys.stderr is None:
        sys.stderr = _stream(_STDERR)


def _stream(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", "replace")


def printable() -> None:
    """Have no character fail to be printed: a path comes out byte by byte, the rest as it can."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if utf8 else "replace")
