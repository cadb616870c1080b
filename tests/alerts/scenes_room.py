"""No room: in the budget, on the disk, and none that comes back."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.alerts.stage import Stage
from tests.filesystems.disks import SIZE, mounted
from tests.filesystems.neighbour import Neighbour
from tests.prometheus.life import CAPACITY, MB, put
from tests.system.daemon import Client


def pin(client: Client, key: str, holder: str = "pod") -> None:
    assert client.call("PUT", f"/v1/pins/{holder}/{key}").status == 201


def unpin(client: Client, key: str, holder: str = "pod") -> None:
    assert client.call("DELETE", f"/v1/pins/{holder}/{key}").status == 204


def blocked(stage: Stage) -> None:
    with stage.daemon() as daemon, ThreadPoolExecutor(1) as replica:
        put(daemon.client, "org/kept", 8 * MB)
        pin(daemon.client, "org/kept")
        waits = replica.submit(put, daemon.client, "org/next", 5 * MB, "?wait=120")
        stage.fires()
        unpin(daemon.client, "org/kept")
        assert waits.result() == 201
        stage.clears()


def too_large(stage: Stage) -> None:
    with stage.daemon() as daemon:
        stage.fires(lambda: put(daemon.client, "org/huge", CAPACITY + MB))
        stage.clears()


def disk_full(stage: Stage) -> None:
    with mounted("tmpfs", stage.place) as disk:
        Neighbour(disk).write(SIZE - 20 * MB)
        with stage.daemon(root=disk / "cache", capacity=SIZE) as daemon:
            stage.fires(lambda: put(daemon.client, "org/m", 40 * MB))
            stage.clears()


def disk_shared(stage: Stage) -> None:
    with mounted("tmpfs", stage.place) as disk:
        neighbour = Neighbour(disk)
        with stage.daemon(root=disk / "cache", capacity=SIZE - 20 * MB):
            neighbour.write(SIZE // 2)
            stage.fires()
            neighbour.leave()
            stage.clears()


def disk_squeezed(stage: Stage) -> None:
    with mounted("tmpfs", stage.place) as disk:
        options = ("--min-free", f"{40 * MB}")
        with stage.daemon(*options, root=disk / "cache", capacity=SIZE) as daemon:
            for number in range(6):
                assert put(daemon.client, f"org/{number}", 40 * MB) == 201
            Neighbour(disk).write(60 * MB)
            stage.fires()
            stage.clears()


def over_budget(stage: Stage) -> None:
    settings = stage.place / "weightd.toml"
    settings.write_text(f"capacity = {10 * MB}\n")
    with stage.daemon("--config", str(settings), capacity=None) as daemon:
        put(daemon.client, "org/kept", 8 * MB)
        pin(daemon.client, "org/kept")
        settings.write_text(f"capacity = {5 * MB}\n")
        daemon.process.send_signal(signal.SIGHUP)
        stage.fires()
        settings.write_text(f"capacity = {10 * MB}\n")
        daemon.process.send_signal(signal.SIGHUP)
        stage.clears()


def idle_pin(stage: Stage) -> None:
    with stage.daemon() as daemon:
        put(daemon.client, "org/kept")
        pin(daemon.client, "org/kept")
        stage.fires()
        unpin(daemon.client, "org/kept")
        stage.clears()


def doomed_stays(stage: Stage) -> None:
    """A file that may not be unlinked."""
    with stage.daemon() as daemon:
        put(daemon.client, "org/stays")
        path = Path(daemon.client.get("/v1/models/org/stays")["path"]) / "stays"
        subprocess.run(["chattr", "+i", path], check=True)
        try:
            assert daemon.client.call("DELETE", "/v1/models/org/stays").status == 204
            stage.fires()
        finally:
            [doomed] = [one for one in stage.root.rglob("stays") if one.is_file()]
            subprocess.run(["chattr", "-i", doomed], check=True)
        stage.clears()
