"""What all commands that talk to the daemon have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from weightd.client import Client, calls, flows
from weightd.client.effects import Request

EVICTIONS_MAX: Final = 1000
"""How many lines of the journal one answer has."""


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


class Caller(Client):
    """A client that has what the daemon tells as it tells it, for ``--json`` and for tables."""

    def document(self, request: Request) -> Any:
        """The JSON of an answer."""
        return self.run(self.asking.document(request))

    def models_told(self) -> list[Any]:
        """All models."""
        return self.run(flows.pages(self.asking, calls.models, "models"))

    def evictions_told(self, last: int) -> list[Any]:
        """The last so many lines of the journal; 0 is all."""
        if not 0 < last <= EVICTIONS_MAX:
            return self.run(flows.pages(self.asking, calls.evictions, "evictions", 0))[-last:]
        found: list[Any] = self.document(calls.evictions(last))["evictions"]
        return found

    def told_here(self, told: Any) -> Any:
        """A record with its paths as they are here.  Raises NotTheSameDirectory."""
        here = self.run(flows.placed(self.mount, told))
        return told | {"path": here.path, "file": here.file}


def client_of(arguments: argparse.Namespace) -> Caller:
    return Caller(arguments.socket)


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
