"""What the cache is worth, and whether it can be relied on."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from tests.alerts.stage import Stage
from tests.api.origin import http_origin
from tests.prometheus.life import MB, get, put
from tests.prometheus.quick import SHORT
from tests.system.faults import FAULTS, failing
from tests.system.fetching import ask

NO_LEASES = (
    *("strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fcntl"),
    *("-e", "inject=fcntl:error=EINVAL", "-P"),
)
"""Makes the probe at the start fail for the file that follows, as on a network filesystem."""


def hit_ratio_collapsed(stage: Stage) -> None:
    with stage.daemon() as daemon:
        put(daemon.client, "org/here")

        def ask_for(key: str) -> None:
            for _ in range(10):
                get(daemon.client, key)

        until = time.monotonic() + 2 * float(SHORT["1h"].rstrip("s"))
        while time.monotonic() < until:
            ask_for("org/here")
            time.sleep(0.2)
        stage.fires(lambda: ask_for("org/absent"))
        stage.clears(lambda: ask_for("org/here"))


def regret_rising(stage: Stage) -> None:
    """Two models take turns, and there is room for one."""
    with stage.daemon(capacity=MB) as daemon:
        turns = itertools.cycle(("org/a", "org/b"))
        put(daemon.client, "org/b", 700_000)
        stage.fires(lambda: put(daemon.client, next(turns), 700_000))
        stage.clears()


def fetches_failing(stage: Stage) -> None:
    with stage.daemon() as daemon, http_origin() as origin:
        keys = (f"org/{number}" for number in itertools.count())
        stage.fires(lambda: ask(daemon.client, next(keys), f"{origin.url}/absent.bin"))
        stage.clears()


def damage(stage: Stage) -> None:
    with stage.daemon() as daemon:
        put(daemon.client, "org/m")
        path = Path(daemon.client.get("/v1/models/org/m")["path"])
        (path / "m").unlink()
        stage.fires(lambda: get(daemon.client, "org/m"))
        stage.clears()


def errors(stage: Stage) -> None:
    """What is to be on stable storage cannot be flushed, and pins are refused."""
    [flush] = [fault for fault in FAULTS if fault.name == "fsync"]
    holders = itertools.count()

    def pin() -> None:
        daemon.client.call("PUT", f"/v1/pins/pod-{next(holders)}/org/m")

    with stage.daemon() as daemon:
        put(daemon.client, "org/m")
        with failing(daemon, flush, "EIO"):
            stage.fires(pin)
        stage.clears(pin)


def pins_unknown(stage: Stage) -> None:
    with stage.daemon() as daemon:
        put(daemon.client, "org/m")
        assert daemon.stop() == 0
    (stage.root / "state.db").write_bytes(b"not a database, and longer than a header" * 100)
    with stage.daemon() as daemon:
        stage.fires()
        assert daemon.client.call("POST", "/v1/pins/accept-loss").status == 204
        stage.clears()


def use_unseen(stage: Stage) -> None:
    with stage.daemon(prefix=(*NO_LEASES, str(stage.root / "FORMAT"))):
        stage.fires()
    with stage.daemon():
        stage.clears()
