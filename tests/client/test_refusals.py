"""No room, by every way in: the same class with the same figures, whoever asks and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.client.conftest import CAPACITY
from tests.client.twins import TWINS, twin
from tests.polling import until
from tests.system.daemon import Daemon, running
from weightd.client import Client
from weightd.errors import Blocked, DiskFull, TooLarge, WeightdError

E = TypeVar("E", bound=WeightdError)

Way = Callable[[Client, str, Path], object]
"""Has a file arrive under a key."""


def by_hold(client: Client, key: str, file: Path) -> object:
    with client.hold(key, f"file://{file}") as hold:
        return hold


WAYS: Final[dict[str, Way]] = {
    "put bytes": lambda client, key, file: client.put(key, file.read_bytes(), file="weights"),
    "put a file": lambda client, key, file: client.put(key, file),
    "fetch": lambda client, key, file: client.fetch(key, f"file://{file}"),
    "hold": by_hold,
}


def refused(client: Client, key: str, file: Path, kind: type[E]) -> E:
    """The refusal, which is the same by every way, as far as the disk lies still."""
    told = []
    for way in WAYS.values():
        with pytest.raises(kind) as error:
            way(client, key, file)
        told.append(error.value)
    figures = [one.figures().keys() for one in told]
    assert figures == [figures[0]] * len(WAYS)
    assert len({str(one) for one in told}) == 1 or kind is DiskFull
    assert client.peek(key) is False
    return told[0]


def sized(daemon: Daemon, size: int) -> Path:
    file = daemon.root.parent / "origins" / f"{size}"
    with file.open("wb") as opened:
        opened.truncate(size)
    return file


def test_too_large(client: Client, key: str, daemon: Daemon) -> None:
    error = refused(client, key, sized(daemon, CAPACITY + 1), TooLarge)
    assert (error.bytes, error.capacity, error.retryable) == (CAPACITY + 1, CAPACITY, False)
    assert client.admission(CAPACITY + 1).verdict == "too-large"


def test_blocked(client: Client, key: str, daemon: Daemon) -> None:
    client.put(f"{key}/kept", bytes(CAPACITY // 2))
    client.pin("replica:9", f"{key}/kept", ttl=60)
    try:
        error = refused(client, key, sized(daemon, CAPACITY // 2 + 2_000_000), Blocked)
        assert client.admission(CAPACITY // 2 + 2_000_000).verdict == "blocked"
    finally:
        client.unpin("replica:9", f"{key}/kept")
        client.delete(f"{key}/kept")
    assert isinstance(error, MemoryError)
    assert ("replica:9", f"{key}/kept") in [(one.holder, one.key) for one in error.holders]
    assert (error.reason, error.retryable) == ("pins", True)
    assert "Held by " in str(error)
    until(lambda: client.status().doomed_bytes == 0)


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "origins").mkdir()
    options = ("--min-free", "100%", "--import-roots", str(tmp_path / "origins"))
    with running(tmp_path / "cache", capacity=10**15, options=options) as daemon:
        for kind in TWINS:
            with twin(kind, daemon.socket) as client:
                error = refused(client, f"full/{kind}", sized(daemon, 100_000), DiskFull)
                assert error.min_free > 0
                assert "Free space on the filesystem" in str(error)
                assert client.admission(100_000).verdict == "disk-full"


def test_a_damaged_model_is_a_miss(daemon: Daemon, key: str) -> None:
    with twin("blocking", daemon.socket) as one, twin("awaiting", daemon.socket) as other:
        file = Path(one.put(key, bytes(5000), file="weights").path, "weights")
        file.chmod(0o644)
        file.write_bytes(b"other")
        # What was just looked at is believed for some seconds.
        until(lambda: one.get(key) is None)
        assert other.get(key) is None
        [line] = [line for line in other.evictions() if line.key == key]
        assert line.reason == "damage"
