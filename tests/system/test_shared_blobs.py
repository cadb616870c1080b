"""Two generations that share a file by hard link, one of them in use, the other evicted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.polling import until
from tests.store.support import MAPS, process
from tests.system.daemon import Daemon, running
from tests.system.journal import settled
from tests.system.models import Content, blocks_of, single
from tests.system.roots import open_store, publish

MB: Final = 1 << 20
CAPACITY: Final = 6 * MB

SHARED: Final = b"s" * (3 * MB)
BASE: Final = Content((("own", b"b" * MB), ("shared", SHARED)))
TUNED: Final = Content((("own", b"t" * MB), ("shared", SHARED)))


@pytest.fixture
def homes(root: Path) -> dict[str, Path]:
    """The directories handed out for two models of a root, their large file one and the same."""
    store = open_store(root)
    try:
        homes = {
            key: store.path_of(publish(store, key, content, number))
            for number, (key, content) in enumerate({"base": BASE, "tuned": TUNED}.items(), 1)
        }
    finally:
        store.close()
    shared = homes["tuned"] / "shared"
    homes["tuned"].chmod(0o755)
    shared.unlink()
    os.link(homes["base"] / "shared", shared)
    homes["tuned"].chmod(0o555)
    return homes


@pytest.mark.parametrize("by", ["an arrival", "a request"])
def test_one_that_is_evicted_frees_just_its_own(
    root: Path, homes: dict[str, Path], by: str
) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        client = daemon.client
        if not client.status()["in_use_detection"]["leases"]:
            pytest.skip("cannot be had on this filesystem: it tells of no use")
        # The root was made without a record of pins.
        assert client.call("POST", "/v1/pins/accept-loss").status == 204
        _booked(daemon, 5 * MB)
        # As a loader does, all of it: by the shared file alone nobody can tell whose name it was.
        with process(MAPS, homes["tuned"] / "own"), process(MAPS, homes["tuned"] / "shared"):
            refused = client.call("DELETE", "/v1/models/tuned")
            assert (refused.status, refused.json()["code"]) == (409, "in-use")
            verdict = client.admission(3 * MB)
            assert (verdict["verdict"], verdict["evictable"]) == ("blocked", MB)
            if by == "an arrival":
                wanted = single("wanted", 2 * MB)
                assert client.call("PUT", "/v1/models/wanted", wanted.body).status == 201
                assert client.call("DELETE", "/v1/models/wanted").status == 204
            else:
                assert client.call("DELETE", "/v1/models/base").status == 204
            _booked(daemon, 4 * MB)
            (gone,) = (
                one for one in client.get("/v1/evictions")["evictions"] if one["key"] == "base"
            )
            assert gone["bytes"] == MB, "what it shared did not go"
            assert not homes["base"].exists()
            assert TUNED.is_at(homes["tuned"])
        assert client.call("DELETE", "/v1/models/tuned").status == 204
        _booked(daemon, 0)
        assert daemon.stop() == 0


def _booked(daemon: Daemon, size: int) -> None:
    """Wait until books and disk both come to ``size``; which files are one is seen by a check."""
    until(lambda: settled(daemon)["used_bytes"] == size, daemon.client.status)
    assert blocks_of(daemon.root) == size
