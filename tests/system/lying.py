"""Models on a server that gives wrong answers for some of their files, and right ones else."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tests.origins.servers.liar import Liar, Request, head
from tests.system.fetching import LISTING, listing
from tests.system.models import Content

ETAG: Final = {"ETag": '"one"', "Accept-Ranges": "bytes"}
_RANGE: Final = re.compile(r"bytes=([0-9]+)-([0-9]*)")


@dataclass(slots=True)
class Asked:
    """A right answer that somebody may spoil: ``start`` and ``stop`` of ``data`` are asked for."""

    liar: Liar
    peer: socket.socket
    data: bytes
    start: int
    stop: int
    part: bool

    @property
    def body(self) -> bytes:
        return self.data[self.start : self.stop]

    def say(self, status: int, length: int, **headers: object) -> None:
        """The head of an answer, true or not."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.peer.sendall(head(status, {**ETAG, **told}, length))

    def head(self) -> None:
        """The head of a right answer."""
        if self.part:
            place = f"bytes {self.start}-{self.stop - 1}/{len(self.data)}"
            self.say(206, len(self.body), Content_Range=place)
        else:
            self.say(200, len(self.body))


Lie: TypeAlias = Callable[[Asked], bool | None]
"""Answers in place of the truth; what is not True hangs up."""


@dataclass(slots=True)
class Library:
    """Models by name, and for their files the lies that are told before the truth is."""

    liar: Liar
    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    lies: dict[str, Iterator[Lie]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The path of every request for a file."""

    before_lying: Callable[[str], object] = lambda name: None
    """Called with the model's name, and may wait."""

    def __post_init__(self) -> None:
        self.liar.answer = self._answer

    def add(self, name: str, content: Content, lies: dict[str, Iterator[Lie]]) -> str:
        """Serve a model; the source to fetch it by."""
        self.models[name] = dict(content.files)
        self.lies |= {f"/{name}/{path}": told for path, told in lies.items()}
        return f"{self.liar.url}/{name}/{LISTING}"

    def _answer(self, request: Request, peer: socket.socket) -> bool | None:
        _, name, path = request.path.split("/", 2)
        files = self.models[name]
        if path == LISTING:
            body = json.dumps(listing(files)).encode()
            peer.sendall(head(200, {}, len(body)) + body)
            return True
        self.asked.append(request.path)
        data = files[path]
        wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
        start, stop = 0, len(data)
        if wanted is not None:
            start, stop = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
        asked = Asked(self.liar, peer, data, start, stop, wanted is not None)
        lie = next(self.lies.get(request.path, iter(())), None)
        if lie is not None:
            self.before_lying(name)
            return lie(asked)
        asked.head()
        asked.peer.sendall(asked.body)
        return True


# -- Lies --------------------------------------------------------------------------------


def of_another_length(asked: Asked) -> bool:
    asked.say(200, len(asked.data) - 7)
    asked.peer.sendall(asked.data[:-7])
    return True


def closes_half_way(asked: Asked) -> None:
    """What it sends is right, as far as it goes."""
    asked.head()
    asked.peer.sendall(asked.body[: len(asked.body) // 2])


def closes_at_once(asked: Asked) -> None:
    """It hangs up in place of an answer."""


def stalls_half_way(asked: Asked) -> None:
    closes_half_way(asked)
    asked.liar.stall()


def stalls_at_once(asked: Asked) -> None:
    asked.liar.stall()


def knows_no_ranges(asked: Asked) -> bool:
    asked.say(200, len(asked.data))
    asked.peer.sendall(asked.data)
    return True


def breaks_off_and_knows_no_ranges(asked: Asked) -> None:
    asked.say(200, len(asked.data))
    asked.peer.sendall(asked.data[: len(asked.data) // 2])


def too_many(retry_after: int) -> Lie:
    def lie(asked: Asked) -> bool:
        asked.peer.sendall(head(429, {"Retry-After": retry_after}))
        return True

    return lie


def forbidden(asked: Asked) -> bool:
    asked.peer.sendall(head(403))
    return True


def to_metadata(asked: Asked) -> bool:
    asked.peer.sendall(head(302, {"Location": "http://169.254.169.254/latest/meta-data/"}))
    return True


def a_wrong_byte(asked: Asked) -> bool:
    body = bytearray(asked.body)
    body[len(body) // 2] ^= 1
    asked.head()
    asked.peer.sendall(body)
    return True
