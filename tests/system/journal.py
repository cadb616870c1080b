"""What a daemon acknowledged, and whether the next one still has it.

A call that was answered has one outcome.  One under which the daemon died may
or may not have happened: until the next start is seen, both are allowed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.system.daemon import Answer, Client, Daemon
from tests.system.models import Content, blocks_of

SETTLED_WITHIN: Final = 60.0
"""Seconds for the clean-up after a start: far more than it takes."""

PinName: TypeAlias = tuple[str, str]
"""Holder and key."""


class Refused(Exception):
    """The daemon answered that it did not do it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, answer.body)
        self.answer = answer


class Journal:
    """What each key, and each pin, may be now.  Several values: nobody can tell.

    For a model that is its content, None for no model; for a pin, the digest
    of the generation, None for no pin.  One thread at a time uses a journal.
    """

    def __init__(self) -> None:
        self.models: dict[str, set[Content | None]] = {}
        self.pins: dict[PinName, set[str | None]] = {}
        self.contents: dict[str, Content] = {}

    @contextmanager
    def model(self, key: str, becomes: Content | None) -> Iterator[None]:
        """While entered, ``key`` may be either; it is ``becomes`` once the daemon said so."""
        if becomes is not None:
            self.contents[becomes.digest] = becomes
        with _either(self.models, key, becomes):
            yield

    @contextmanager
    def pin(self, name: PinName, becomes: str | None) -> Iterator[None]:
        with _either(self.pins, name, becomes):
            yield

    def pinned(self, key: str) -> bool:
        """Whether a pin certainly keeps what is certainly the model of ``key``."""
        models = self.models.get(key, {None})
        digests = {None if one is None else one.digest for one in models}
        held = [allowed for (_, pinned), allowed in self.pins.items() if pinned == key]
        return len(digests) == 1 and None not in digests and digests in held

    def may_be_evicted(self, keys: Iterable[str]) -> None:
        """Any arrival may have cost these, unless they are pinned."""
        for key in keys:
            if not self.pinned(key):
                self.models.setdefault(key, set()).add(None)

    def absorb(self, other: Journal) -> None:
        """Take over what another thread's journal says of its own keys."""
        self.models |= other.models
        self.pins |= other.pins
        self.contents |= other.contents


@contextmanager
def _either(
    table: dict[Any, set[Any]],
    name: object,
    becomes: object,
) -> Iterator[None]:
    before = table.get(name, {None})
    table[name] = before | {becomes}
    try:
        yield
    except Refused:
        table[name] = before
        raise
    table[name] = {becomes}


class Life:
    """A client that writes down what it was told."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self.client = client
        self.journal = journal

    def put(self, key: str, content: Content, victims: Iterable[str] = (), query: str = "") -> None:
        """Put a model, which evicts ``victims``, and only those."""
        headers = {"Content-Type": "application/x-tar"} if content.archive else {}
        victims = tuple(victims)
        self.journal.may_be_evicted(victims)
        with self.journal.model(key, content):
            answer = self._call("PUT", f"/v1/models/{key}{query}", content.body, headers)
        assert answer.json()["digest"] == content.digest
        for victim in victims:
            self.journal.models[victim] = {None}

    def fetch(self, key: str, content: Content, sources: list[str]) -> None:
        """Fetch a model, which evicts nothing."""
        asked = json.dumps({"key": key, "source": sources}).encode()
        with self.journal.model(key, content):
            answer = self._call("POST", "/v1/fetch?wait=60", asked)
        assert answer.json()["digest"] == content.digest

    def upload(self, key: str, content: Content, user: int) -> None:
        """Fill a directory with a model, as a user where this process can; it evicts nothing."""
        files = [{"path": path, "bytes": len(data)} for path, data in content.files]
        asked = json.dumps({"key": key, "files": files}).encode()
        with self.journal.model(key, content):
            told = self._call("POST", "/v1/uploads", asked).json()
            for path, data in content.files:
                place = Path(told["path"], path)
                place.write_bytes(data)
                if os.geteuid() == 0:
                    os.chown(place, user, user)
            answer = self._call("POST", f"/v1/uploads/{told['id']}/commit")
        assert answer.json()["digest"] == content.digest

    def adopt(self, key: str, content: Content, home: Path, **more: object) -> None:
        """Make a model of files in ``home``, which it then has and nobody else; evicts nothing."""
        files = []
        for path, data in content.files:
            place = home / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            files.append({"path": path, "place": str(place), "bytes": len(data), **more})
        asked = json.dumps({"key": key, "files": files}).encode()
        with self.journal.model(key, content):
            answer = self._call("POST", "/v1/adopt", asked)
        assert answer.json()["digest"] == content.digest

    def delete(self, key: str) -> None:
        with self.journal.model(key, None):
            self._call("DELETE", f"/v1/models/{key}")

    def pin(self, holder: str, key: str, ttl: str = "") -> None:
        """Pin what ``key`` certainly is, or renew."""
        (content,) = self.journal.models[key]
        assert content is not None
        held = self.journal.pins.get((holder, key), {None})
        # A renewal keeps the generation that the holder has.
        digest = content.digest if held == {None} else next(iter(held))
        with self.journal.pin((holder, key), digest):
            answer = self._call("PUT", f"/v1/pins/{holder}/{key}{ttl and '?ttl='}{ttl}")
        assert answer.json()["digest"] == digest

    def unpin(self, holder: str, key: str) -> None:
        with self.journal.pin((holder, key), None):
            self._call("DELETE", f"/v1/pins/{holder}/{key}")

    def _call(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> Any:
        answer = self.client.call(method, path, body, headers)
        assert answer.status < 500 or answer.status == 503, answer
        if answer.status >= 400:
            raise Refused(answer)
        return answer


# -- After a restart -----------------------------------------------------------------


def verify(daemon: Daemon, journal: Journal, shared: Iterable[str] = ()) -> None:
    """Rules 1, 4, 5 and 7 hold on what a daemon found at its start.

    The journal knows afterwards what became of what it could not tell.  Of the
    ``shared`` keys, which no single thread wrote, it is only known that what is
    answered is whole and was put at some time.
    """
    client = daemon.client
    for key, allowed in journal.models.items():
        # The first of these is the daemon's first request: it serves before it cleans up.
        journal.models[key] = {_answered(client, journal, key)}
        assert journal.models[key] <= allowed, (key, journal.models[key], allowed, daemon.said())
    for key in shared:
        _answered(client, journal, key)
    _verify_pins(client, journal)
    verify_disk(daemon, settled(daemon))


def settled(daemon: Daemon) -> Any:
    """The status once nothing is arriving, doomed or retired for nothing."""
    kept = {(pin["key"], pin["generation"]) for pin in pins(daemon.client) if not pin["current"]}
    deadline = time.monotonic() + SETTLED_WITHIN
    while True:
        status = daemon.client.status()
        busy = status["arrivals"] or status["doomed_bytes"] or status["reserved_bytes"]
        # A directory goes a moment after the bytes that were in it.
        left = [*os.listdir(daemon.root / "incoming"), *os.listdir(daemon.root / "doomed")]
        if not busy and not left and status["retired_models"] == len(kept):
            return status
        assert time.monotonic() < deadline, (left, status, kept, daemon.said())
        time.sleep(0.02)  # nothing announces the last unlink


def pins(client: Client) -> list[Any]:
    """Every pin, without what only the kernel says is in use."""
    return [one for one in client.get("/v1/pins")["pins"] if one["kind"] == "pin"]


def _answered(client: Client, journal: Journal, key: str) -> Content | None:
    """What a lookup answers, whole on disk."""
    answer = client.call("GET", f"/v1/models/{key}")
    if answer.status == 404:
        return None
    assert answer.status == 200, answer
    record = answer.json()
    content = journal.contents[record["digest"]]
    assert content.is_at(Path(record["path"])), f"{key} is not whole"
    return content


def _verify_pins(client: Client, journal: Journal) -> None:
    """Every acknowledged pin is there, no other is, and what they keep is whole."""
    found: dict[PinName, str | None] = {}
    for pin in pins(client):
        found[pin["holder"], pin["key"]] = pin["generation"]
        # A renewal changes nothing but the lease, and answers the generation's path.
        answer = client.call("PUT", f"/v1/pins/{pin['holder']}/{pin['key']}")
        assert answer.status == 200, answer
        record = answer.json()
        assert record["digest"] == pin["generation"]
        content = journal.contents[pin["generation"]]
        assert content.is_at(Path(record["path"])), f"the pinned {pin} is not whole"
    for name in journal.pins | found:
        now = found.get(name)
        assert now in journal.pins.get(name, {None}), (name, now, journal.pins.get(name))
        journal.pins[name] = {now}


def verify_disk(daemon: Daemon, status: Any) -> None:
    """Nothing is on disk that is not in the books, and the sums agree to the block."""
    root = daemon.root
    assert status["foreign"] == []
    assert status["damaged_models"] == 0
    listed = [record["relative_path"] for record in listed_models(daemon.client)]
    assert len(os.listdir(root / "models")) == len(listed) + status["retired_models"]
    assert status["used_bytes"] == status["resident_bytes"] + status["retired_bytes"]
    assert status["used_bytes"] == blocks_of(root)
    assert status["used_bytes"] <= status["capacity_bytes"]


def listed_models(client: Client) -> list[Any]:
    """Every record, page by page."""
    found: list[Any] = []
    after = ""
    while True:
        page = client.get(f"/v1/models?limit=1000{after and '&after='}{after}")
        found += page["models"]
        if page["next"] is None:
            return found
        after = page["next"]
