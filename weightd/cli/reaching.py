"""What all commands that talk to the daemon have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from weightd.client import Client


def add_common(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """The flags that every such command takes."""
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help="the daemon's socket; else WEIGHTD_SOCKET, else where a daemon of this user or of "
        "root's is",
    )
    if json:
        parser.add_argument(
            "--json", action="store_true", help="print the daemon's answer, for a program"
        )


def add_key(
    parser: argparse.ArgumentParser, what: str = "the model's key: NAME or NAME@REVISION"
) -> None:
    parser.add_argument("key", metavar="KEY", help=what)


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        metavar="DURATION",
        type=read_by("parse_duration"),
        default=0.0,
        help="how long to wait while blocked, such as 30s or 10m; none when left out",
    )


def told_here(client: Client, told: Any) -> Any:
    """A record as the daemon tells it, with its paths as they are here."""
    here = client.here(told)
    return told | {"path": here.path, "file": here.file}


def client_of(arguments: argparse.Namespace) -> Client:
    return Client(arguments.socket)


def read_by(name: str) -> Callable[[str], float]:
    """A reader of `weightd.units`, imported when there is something to read."""

    def read(text: str) -> float:
        from weightd import units

        try:
            value: float = getattr(units, name)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


def read_ttl(text: str) -> float | str:
    """Seconds, or ``forever``."""
    return text if text == "forever" else read_by("parse_duration")(text)


def read_holder(text: str) -> str:
    """A holder's name."""
    from weightd.errors import InvalidRequest
    from weightd.model import parse_holder

    try:
        return parse_holder(text)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(error.reason) from None
