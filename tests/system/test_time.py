"""Reboots, wall clocks that are set, and ten thousand leases that end in one second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.polling import WITHIN, until
from tests.system.daemon import Daemon, running
from tests.system.metrics import agree, metrics
from tests.system.models import Content
from tests.system.roots import open_store, publish
from weightd.model import Pin
from weightd.store import CHANGES_MAX, PinChange, PinDatabase

MB = 1 << 20
CAPACITY = 10 * MB
LEASES: Final = 10_000


def holders(daemon: Daemon) -> set[str]:
    return {pin["holder"] for pin in daemon.client.get("/v1/pins")["pins"]}


def gone(daemon: Daemon, holder: str) -> bool:
    return holder not in holders(daemon)


def pin(daemon: Daemon, holder: str, key: str, ttl: str = "") -> Any:
    answer = daemon.client.call("PUT", f"/v1/pins/{holder}/{key}{ttl}")
    assert answer.status == 201, answer
    return answer.json()


def put(daemon: Daemon, key: str) -> Any:
    answer = daemon.client.call("PUT", f"/v1/models/{key}", key.encode() * 4096)
    assert answer.status == 201, answer
    return answer.json()


# -- Reboots ---------------------------------------------------------------------


def booted(place: Path, boot_id: str) -> Sequence[str]:
    """A command under which the kernel names this boot ``boot_id``."""
    told = place / f"boot-{boot_id}"
    told.write_text(f"{boot_id}\n")
    script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, str(told))


@pytest.mark.needs("root", "unshare", "mount")
def test_pins_of_an_earlier_boot_lapse_after_the_grace(root: Path, tmp_path: Path) -> None:
    grace = ("--orphan-grace", "2s")
    with running(root, capacity=CAPACITY, prefix=booted(tmp_path, "first")) as daemon:
        put(daemon, "m")
        pin(daemon, "dead", "m")
        pin(daemon, "renews", "m")
        pin(daemon, "eternal", "m", "?ttl=forever")
        daemon.kill()
    # The same boot: nothing lapses for a restart of the daemon.
    first, second = booted(tmp_path, "first"), booted(tmp_path, "second")
    with running(root, capacity=CAPACITY, options=grace, prefix=first) as daemon:
        pin(daemon, "witness", "m", "?ttl=3")
        until(partial(gone, daemon, "witness"), daemon.said)
        assert holders(daemon) == {"dead", "renews", "eternal"}
        daemon.kill()
    with running(root, capacity=CAPACITY, options=grace, prefix=second) as daemon:
        assert daemon.client.call("PUT", "/v1/pins/renews/m").status == 200
        until(partial(gone, daemon, "dead"), daemon.said)
        assert holders(daemon) == {"renews", "eternal"}
        assert daemon.stop() == 0


# -- A wall clock that is set ------------------------------------------------------


class WallClock:
    """The wall clock of one process, set by hand; what only counts on goes on as it does."""

    def __init__(self, place: Path) -> None:
        self._file = place / "wall-clock"
        self.shift("+0")

    def shift(self, by: str) -> None:
        """Set it ahead or back; the file is replaced whole, since it is read at any time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{by}\n")
        fresh.rename(self._file)

    @property
    def prefix(self) -> Sequence[str]:
        """A command under which a process has this clock."""
        # The program of that name would fake what only counts on as well, in one thread.
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        return (
            "env",
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )


@pytest.mark.needs("faketime")
def test_a_jump_of_the_wall_clock_ends_no_lease_early_or_late(root: Path, tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    with running(root, capacity=CAPACITY, prefix=clock.prefix) as daemon:
        published = put(daemon, "m")["published_at"]
        pin(daemon, "long", "m", "?ttl=3600")
        for jump, key in (("-1d", "back"), ("+1d", "ahead")):
            pin(daemon, key, "m", "?ttl=2")
            clock.shift(jump)
            until(partial(gone, daemon, key), daemon.said)
            assert holders(daemon) == {"long"}
            later = put(daemon, key)["published_at"]
            assert 0 <= seconds(later) - seconds(published) < WITHIN
            # The order of use is that of the uses, whatever the clock says.
            daemon.client.get("/v1/models/m")
            assert used(daemon, key) < used(daemon, "m")
        assert daemon.stop() == 0


@pytest.mark.needs("faketime")
def test_a_restart_under_a_clock_set_back_keeps_leases_and_order(
    root: Path, tmp_path: Path
) -> None:
    clock = WallClock(tmp_path)
    with running(root, capacity=CAPACITY, prefix=clock.prefix) as daemon:
        put(daemon, "old")
        put(daemon, "new")
        pin(daemon, "long", "new", "?ttl=3600")
        pin(daemon, "short", "new", "?ttl=2")
        assert daemon.stop() == 0
    clock.shift("-1d")
    with running(root, capacity=CAPACITY, prefix=clock.prefix) as daemon:
        until(partial(gone, daemon, "short"), daemon.said)
        assert holders(daemon) == {"long"}
        put(daemon, "newest")
        assert used(daemon, "old") < used(daemon, "new") < used(daemon, "newest")
        assert daemon.stop() == 0


def seconds(told: str) -> float:
    return datetime.fromisoformat(told).timestamp()


def used(daemon: Daemon, key: str) -> float:
    models = daemon.client.get("/v1/models")["models"]
    return seconds(next(one["last_used_at"] for one in models if one["key"] == key))


# -- Ten thousand leases -------------------------------------------------------------


def test_ten_thousand_leases_end_in_one_second(root: Path) -> None:
    """Each gets its ttl from the start, so all are due at once; lookups go on meanwhile."""
    with closing(open_store(root)) as store:
        generation = publish(store, "m", Content((("m", b"m" * 4096),)), 1)
        database = PinDatabase.open(store.state_path)
        pins = (Pin(f"h{n}", generation, time.time(), 2.0, None) for n in range(LEASES))
        changes = [PinChange.put(one, "a boot") for one in pins]
        for first in range(0, LEASES, CHANGES_MAX):
            database.apply(changes[first : first + CHANGES_MAX])
        database.close()
    with running(root, capacity=CAPACITY) as daemon:
        client = daemon.client
        expired = 0
        seen = set()
        bound = time.monotonic() + WITHIN
        while expired < LEASES:
            assert time.monotonic() < bound, (expired, daemon.said())
            status = client.status()
            expired = status["expired_pins"]
            assert status["pins"] == LEASES - expired
            assert client.call("GET", "/v1/models/m").status == 200
            seen.add(expired)
        # Requests had their turn while leases ended, not only before and after.
        assert seen - {0, LEASES}
        assert client.get("/v1/pins")["pins"] == []
        assert metrics(client)["weightd_expired_pins_total"] == LEASES
        agree(daemon)
        assert client.call("DELETE", "/v1/models/m").status == 204
        assert daemon.stop() == 0
    with closing(open_store(root)) as store:
        database = PinDatabase.open(store.state_path)
        assert database.load() == []
        database.close()
