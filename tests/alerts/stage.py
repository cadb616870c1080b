"""One alert on one node: what makes it fire, and whether it is seen to fire and to clear."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.origins.servers.ports import free_ports
from tests.prometheus.life import CAPACITY
from tests.prometheus.server import Prometheus
from tests.system.daemon import Client, Daemon, running

WITHIN: Final = 150.0
"""Seconds: three times what the slowest alert takes to fire or to clear."""

LOOK: Final = 0.2


def _nothing() -> None:
    return None


@dataclass
class Stage:
    """Where one alert is shown; the node is called like the alert."""

    alert: str
    prometheus: Prometheus
    place: Path
    waits: bool
    """Whether the alert is pending before it fires."""
    port: int = field(default_factory=lambda: free_ports(1)[0])
    node: str = ""
    told: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.place / "cache"

    @contextmanager
    def daemon(self, *options: str, root: Path | None = None, **more: Any) -> Iterator[Daemon]:
        """A daemon that is scraped as this stage's node."""
        self.node = self.alert
        more.setdefault("capacity", CAPACITY)
        listening = ("--listen", f"127.0.0.1:{self.port}", *options)
        with running(root or self.root, options=listening, **more) as daemon:
            self.prometheus.scrape({self.node: self.port})
            self._until(lambda: bool(self._of("weightd_start_time_seconds")), _nothing, "scraped")
            yield daemon

    def scraped_anew(self, client: Client) -> None:
        """Wait until what is scraped is of the daemon that runs now."""
        began = (
            client.call("GET", "/metrics").body.decode().partition("\nweightd_start_time_seconds ")
        )
        now = float(began[2].split()[0])
        self._until(lambda: self._of("weightd_start_time_seconds") == [now], _nothing, "scraped")

    def fires(self, meanwhile: Callable[[], object] = _nothing) -> None:
        """Wait until it fires, and see that it was pending before if it has to be."""
        assert self._state() != "firing", "before its cause"
        if self.waits:
            self._until(lambda: self._state() == "pending", meanwhile, "pending")
        self._until(lambda: self._state() == "firing", meanwhile, "fired")

    def clears(self, meanwhile: Callable[[], object] = _nothing) -> None:
        self._until(lambda: self._state() == "inactive", meanwhile, "cleared")

    def _state(self) -> str:
        return self.prometheus.alerts().get((self.alert, self.node), "inactive")

    def _of(self, series: str) -> list[float]:
        found = self.prometheus.query(f'{series}{{instance="{self.node}"}}')
        return [float(one["value"][1]) for one in found]

    def _until(self, true: Callable[[], bool], meanwhile: Callable[[], object], what: str) -> None:
        began = time.monotonic()
        while not true():
            assert time.monotonic() < began + WITHIN, (self.alert, what, self.told)
            meanwhile()
            time.sleep(LOOK)
        self.told.append(f"{what} after {time.monotonic() - began:.1f} s")
