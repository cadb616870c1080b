"""Use that the kernel knows, on a filesystem of each kind."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.support import HOLDS, MAPS, OPENS, process
from tests.system.daemon import Daemon, running
from tests.system.journal import Journal, Life, Refused, pins, verify
from tests.system.models import single

SIZE = 1_000_000
CAPACITY = 4 * 1_003_520
"""Four such models in whole blocks."""

USES = {"held": HOLDS, "mapped": MAPS, "opened": OPENS}


def test_what_is_used_is_never_taken_and_goes_once_it_is_let_go(disk: Path) -> None:
    with running(disk / "root", capacity=CAPACITY) as daemon:
        assert daemon.client.status()["in_use_detection"] == {"leases": True, "holds": True}
        life = Life(daemon.client, Journal())
        with ExitStack() as stack:
            for key, code in USES.items():
                life.put(key, single(key, SIZE))
                path = Path(daemon.client.get(f"/v1/models/{key}")["path"])
                stack.enter_context(process(code, path if key == "held" else path / key))
            life.put("first", single("first", SIZE))
            # Three of the four are older than it, and none of them goes.
            life.put("second", single("second", SIZE), victims=["first"])
            refused(daemon, life)
            verify(daemon, life.journal)
        # A wait is answered once the last of them was seen to have ended.
        life.journal.may_be_evicted(life.journal.models)
        life.put("large", single("large", 3 * SIZE), query="?wait=30")
        verify(daemon, life.journal)
        journal = daemon.client.get("/v1/evictions")["evictions"]
        assert [one["key"] for one in journal][:1] == ["first"]
        assert {one["key"] for one in journal[1:]} <= {*USES, "second"}
        assert daemon.stop() == 0


def refused(daemon: Daemon, life: Life) -> None:
    """What needs the room of one in use is blocked, and nothing moves."""
    with pytest.raises(Refused) as blocked:
        life.put("large", single("large", 2 * SIZE))
    assert blocked.value.answer.json()["code"] == "blocked"
    for key in USES:
        with pytest.raises(Refused) as kept:
            life.delete(key)
        assert kept.value.answer.json()["code"] == "in-use"
    uses = {one["key"]: one["kind"] for one in daemon.client.get("/v1/pins")["pins"]}
    assert uses == {"held": "hold", "mapped": "use", "opened": "use"}
    assert pins(daemon.client) == []
