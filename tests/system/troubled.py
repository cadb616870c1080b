"""A client beside a disk that fails: it writes down what it was told, and knows every refusal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.polling import WITHIN, until
from tests.system.daemon import Answer, Client
from tests.system.journal import Journal, Life, Refused
from tests.system.models import Content

REFUSALS: Final = {
    "io-error": 500,
    "state-unwritable": 503,
    "blocked": 503,
    "disk-full": 507,
    "pinned": 409,
    "in-use": 409,
}
"""What may be answered meanwhile: never a miss, and never a fault of weightd's own."""


class Troubled(Life):
    """A client to whom much may be refused, all of it in documented words.

    ``told`` are the codes of the refusals since it was emptied.
    """

    def __init__(self, client: Client, journal: Journal) -> None:
        super().__init__(client, journal)
        self.told: set[str] = set()

    def tries(self, act: Callable[..., None], *args: Any) -> None:
        """Do what may be refused."""
        try:
            act(*args)
        except Refused:
            return

    def asks(self, path: str) -> None:
        """Ask what changes nothing, and may be refused."""
        self.tries(self._get, path)

    def sends(self, key: str, content: Content, body: Iterator[bytes]) -> None:
        """Put a model of which ``body`` is sent piece by piece, and which may be refused."""
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(len(content.body))}
        try:
            with self.journal.model(key, content):
                self._call("PUT", f"/v1/models/{key}", body, headers)
        except Refused:
            return

    def _get(self, path: str) -> None:
        self._call("GET", path)

    def _call(self, method: str, path: str, body: Any = None, headers: Any = None) -> Answer:
        answer = self.client.call(method, path, body, headers)
        if answer.status >= 400:
            problem = answer.json()
            if (method, problem["code"]) == ("DELETE", "not-resident"):
                raise Refused(answer)  # evicted just before; whether it may have been, is verified
            assert REFUSALS.get(problem["code"]) == answer.status, (method, path, answer)
            self.told.add(problem["code"])
            raise Refused(answer)
        return answer


class Aside:
    """An act in a thread of its own, for one that may wait until a fault has gone."""

    def __init__(self, act: Callable[..., None], *args: Any) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(act, *args))
        self._thread.start()

    def join(self) -> None:
        """Wait for its end, and raise what it raised."""
        self._thread.join(WITHIN)
        assert not self._thread.is_alive(), "it hangs"
        if self._failure is not None:
            raise AssertionError("it saw what must not be") from self._failure

    def _run(self, act: Callable[..., None], *args: Any) -> None:
        try:
            act(*args)
        except BaseException as failure:  # noqa: BLE001 - whoever joins raises it
            self._failure = failure


class Arrival:
    """A put of a directory, stopped in the midst of the file ``file`` until it is finished."""

    def __init__(self, life: Troubled, root: Path, key: str, content: Content, cut: int) -> None:
        """``cut`` is how many bytes of the stream are sent first."""
        self._go = threading.Event()
        before = set((root / "incoming").iterdir())

        def body() -> Iterator[bytes]:
            yield content.body[:cut]
            assert self._go.wait(WITHIN)
            yield content.body[cut:]

        self._put = Aside(life.sends, key, content, body())
        self.file = _file_below(root / "incoming", before, content.files[1][0])

    def finish(self) -> None:
        """Send the rest, and wait for the answer."""
        self._go.set()
        self._put.join()


def _file_below(place: Path, before: set[Path], name: str) -> Path:
    """The file of that name in a directory that is new in ``place``, once it is there."""

    def found() -> list[Path]:
        return [file for one in set(place.iterdir()) - before for file in one.glob(f"*/{name}")]

    return until(found, lambda: "the arrival did not come to its second file")[0]
