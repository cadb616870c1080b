"""The daemon is killed at every named step, and the next one starts on what is left.

One scripted life passes every failpoint.  `WEIGHTD_FAILPOINT` kills the process
by SIGKILL at one of them; what was acknowledged by then is what the next daemon
must have.  A failpoint that is never reached fails.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.api.origin import Origin, http_origin
from tests.system.daemon import GONE, Daemon, running
from tests.system.journal import Journal, Life, Refused, settled, verify
from tests.system.models import Content, directory, single
from tests.system.roots import open_store, pin, publish
from tests.system.tiers import THOROUGH
from weightd.failpoints import NAMES

UNIT: Final = 65536
CAPACITY: Final = 20 * UNIT

BASE: Final = ("base/a", "base/b", "base/c")
"""Models that were here before, the longest unused first."""

KEPT: Final = "org/kept@main"
"""A model that was here before and is pinned."""

LATER: Final = {
    "ingest.file-flushed": 7,  # within an archive, and right after a return
    "publish.renamed": 2,  # what two were evicted for
    "retire.marked": 3,  # of a successor, which is newer
    "evict.renamed-one": 3,  # the second of the two
    "unlink.file-removed": 3,  # in the background
    "unpin.committed": 3,  # of what was retired and goes
}
"""Occurrences that differ in kind from the first."""


SMALL: Final = 5 * UNIT
"""A budget that two of the base's models have to go for, and that the pinned one fits."""


@pytest.fixture
def origin() -> Iterator[Origin]:
    with http_origin() as serving:
        yield serving


def _lay_out(root: Path) -> Journal:
    """Make a root with four models, one pinned; what is known of it."""
    journal = Journal()
    store = open_store(root)
    try:
        for sequence, key in enumerate((*BASE, KEPT), start=1):
            content = single(key, UNIT if key == KEPT else 3 * UNIT)
            generation = publish(store, key, content, sequence)
            journal.models[key] = {content}
            journal.contents[content.digest] = content
            if key == KEPT:
                pin(store, "keeper", generation)
                journal.pins["keeper", KEPT] = {generation.digest}
    finally:
        store.close()
    return journal


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs("root", "setpriv"))
        if name == "ingest.copied"
        else name
        for name in sorted(NAMES)
    ],
)
def test_killed_at_a_failpoint(tmp_path: Path, origin: Origin, name: str) -> None:
    for occurrence in count(1) if THOROUGH else (1, LATER.get(name, 1)):
        root = tmp_path / str(occurrence) / "cache"
        if root.exists():
            break
        root.parent.mkdir()
        journal = _lay_out(root)
        died = _dies(root, journal, f"{name}:{occurrence}", origin)
        assert died or (THOROUGH and occurrence > 1), f"{name}:{occurrence} was never reached"
        with running(root, capacity=CAPACITY) as daemon:
            _verify(daemon, journal)
            _nothing_is_lost(root.parent, journal)
        if not died:
            break


@pytest.mark.parametrize("name", ["unlink.file-removed", "unlink.directory-removed"])
def test_killed_while_it_cleans_up(root: Path, origin: Origin, name: str) -> None:
    journal = _lay_out(root)
    assert _dies(root, journal, "evict.parents-flushed:2", origin)
    with running(root, capacity=CAPACITY, failpoint=name, ready=False) as daemon:
        assert daemon.ended() == -signal.SIGKILL, daemon.said()
    with running(root, capacity=CAPACITY) as daemon:
        _verify(daemon, journal)


@pytest.mark.parametrize("name", ["evict.renamed-one:2", "unlink.directory-removed"])
def test_killed_while_it_evicts_down_to_a_smaller_budget(root: Path, name: str) -> None:
    journal = _lay_out(root)
    with running(root, capacity=SMALL, failpoint=name, ready=False) as daemon:
        assert daemon.ended() == -signal.SIGKILL, daemon.said()
    journal.may_be_evicted(BASE[:2])
    with running(root, capacity=SMALL) as daemon:
        verify(daemon, journal)
    # What was pinned, and what was used last, fit and are still there.
    assert journal.models[KEPT] != {None}
    assert journal.models[BASE[2]] != {None}


def _dies(root: Path, journal: Journal, failpoint: str, origin: Origin) -> bool:
    """Live a life until the failpoint kills the daemon; False when it did not."""
    prefix = MAY_GIVE_NOTHING if failpoint.startswith("ingest.copied") else ()
    with running(root, capacity=CAPACITY, failpoint=failpoint, prefix=prefix) as daemon:
        try:
            life = Life(daemon.client, journal)
            _live(life)
            _fetch(life, origin)
            life.upload("org/uploaded", UPLOADED, ANOTHER)
            life.delete("org/uploaded")
            with pytest.raises(Refused):
                life.adopt("org/refused", ADOPTED, root.parent / "kept", sha256="0" * 64)
            life.adopt("org/adopted", ADOPTED, root.parent / "home")
        except GONE:
            assert daemon.ended() == -signal.SIGKILL, daemon.said()
            return True
        # What is unlinked in the background may reach it a moment later.
        return daemon.ended(within=2.0) == -signal.SIGKILL


def _nothing_is_lost(place: Path, journal: Journal) -> None:
    """What was to be adopted is in the model, or all of it where it was."""
    for home, key in (("kept", "org/refused"), ("home", "org/adopted")):
        there = {path for path, data in ADOPTED.files if _has(place / home / path, data)}
        if key in journal.models:
            adopted = journal.models[key] == {ADOPTED}
            assert there == (set() if adopted else {path for path, _ in ADOPTED.files})


def _has(place: Path, data: bytes) -> bool:
    return place.exists() and place.read_bytes() == data


def _live(life: Life) -> None:
    """Everything that changes the disk, so that every failpoint is passed."""
    kept, other = single(KEPT, UNIT), single(KEPT, UNIT, "other")
    _put(life, KEPT, other)  # replaces what is pinned, which is retired
    _put(life, KEPT, kept)  # brings it back, and its successor goes
    _put(life, "big/x", single("big/x", 14 * UNIT))  # needs the room of two
    _put(life, KEPT, other)
    life.pin("replica-3", KEPT)
    _put(life, KEPT, kept)  # brings it back, and its successor is retired
    _put(life, "org/tree", directory("org/tree", 2 * UNIT))
    life.unpin("replica-3", KEPT)
    life.pin("replica-1", "org/tree")
    life.pin("replica-1", "org/tree", ttl="600")
    life.unpin("replica-1", "org/tree")
    _put(life, "org/y", single("org/y", UNIT))
    life.pin("replica-2", "org/y")
    _put(life, "org/y", single("org/y", UNIT, "newer"))
    life.unpin("replica-2", "org/y")  # the last pin of a retired one, which goes
    with pytest.raises(Refused):
        life.put("org/y", single("org/y", UNIT, "wrong"), query="?sha256=" + "0" * 64)
    life.delete("org/y")


ADOPTED: Final = Content((("a/w", b"w" * 20_000), ("x", b"x" * 9_000)))
FETCHED: Final = Content((("a/w", b"w" * 30_000), ("x", b"x" * 9_000)))
FETCHED_LATER: Final = Content((("a/w", b"w" * 30_000), ("y", b"y" * 5_000)))


def _fetch(life: Life, origin: Origin) -> None:
    """An arrival in pieces that is wrong, parked and gone on with; and one that shares a file."""
    damaged = Content((("a/w", b"w" * 30_000), ("x", b"y" * 9_000)))
    mirrors = [_serve(origin, "first", FETCHED, damaged), _serve(origin, "second", FETCHED)]
    life.fetch("org/fetched@1", FETCHED, mirrors)
    life.fetch("org/fetched@2", FETCHED_LATER, [_serve(origin, "later", FETCHED_LATER)])


UPLOADED: Final = Content((("a/w", b"w" * 30_000), ("x", b"x" * 9_000)))
ANOTHER: Final = 65534
"""The user who wrote it."""

MAY_GIVE_NOTHING: Final = ("setpriv", "--bounding-set=-chown")
"""How root is that can only copy what is another user's."""


def _serve(origin: Origin, name: str, told: Content, served: Content | None = None) -> str:
    """List what is ``told``, serve the bytes of ``served``; the source to fetch it by."""
    for path, data in (served or told).files:
        origin.files[f"/{name}/{path}"] = data
    files = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in told.files
    ]
    origin.files[f"/{name}/m.json"] = json.dumps({"files": files}).encode()
    return f"{origin.url}/{name}/m.json"


def _put(life: Life, key: str, content: Content) -> None:
    verdict = life.client.admission(len(content.body), key)
    life.put(key, content, [victim["key"] for victim in verdict["victims"]])


def _verify(daemon: Daemon, journal: Journal) -> None:
    client = daemon.client
    # It answers at once, whatever there is to clean up.
    assert client.get(f"/v1/models/{KEPT}")["key"] == KEPT
    # What was on its way goes on by itself.
    for job in client.get("/v1/fetches")["fetches"]:
        client.call("GET", f"/v1/fetches/{job['id']}/events")
    _verify_order(daemon, journal)
    verify(daemon, journal)
    life = Life(client, journal)
    _put(life, "org/after", single("org/after", UNIT))
    life.delete("org/after")
    verify(daemon, journal)


def _verify_order(daemon: Daemon, journal: Journal) -> None:
    """What was here before is still first in line, in the same order."""
    status = settled(daemon)
    everything = daemon.client.admission(status["evictable_bytes"] + status["free_bytes"])
    victims = [victim["key"] for victim in everything["victims"]]
    there = [key for key in BASE if key in victims]
    assert victims[: len(there)] == there
    assert set(there) >= {key for key in BASE if None not in journal.models[key]}
