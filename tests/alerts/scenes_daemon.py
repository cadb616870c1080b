"""Daemons that are gone, restart, hang, or turn requests away."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.alerts.stage import Stage
from tests.prometheus.life import MB, get, put
from tests.system.daemon import GONE, Client, Daemon


def down(stage: Stage) -> None:
    with stage.daemon() as daemon:
        daemon.kill()
        stage.fires()
    with stage.daemon():
        stage.clears()


def absent(stage: Stage) -> None:
    stage.prometheus.scrape({})
    stage.fires()
    with stage.daemon():
        stage.node = ""
        stage.clears()


def not_ready(stage: Stage) -> None:
    """It drains, and waits for a put that goes on."""
    with stage.daemon("--drain-timeout", "120") as daemon:
        with slow_put(daemon.client):
            daemon.process.send_signal(signal.SIGTERM)
            stage.fires()
        assert daemon.ended() == 0
    with stage.daemon():
        stage.clears()


def restarting(stage: Stage) -> None:
    def again() -> None:
        with stage.daemon() as daemon:
            stage.scraped_anew(daemon.client)

    again()
    stage.fires(again)
    with stage.daemon():
        stage.clears()


def slow(stage: Stage) -> None:
    """The daemon stands still again and again while lookups are under way."""
    with stage.daemon() as daemon, ThreadPoolExecutor(40) as clients:
        for number in range(40):
            assert put(daemon.client, f"org/{number}", 10_000) == 201

        def stand_still() -> None:
            asked = [clients.submit(get, daemon.client, f"org/{number}") for number in range(40)]
            time.sleep(0.005)
            with daemon.frozen():
                time.sleep(0.7)
            assert {one.result() for one in asked} == {200}

        stage.fires(stand_still)
        stage.clears(lambda: [get(daemon.client, f"org/{number}") for number in range(10)])


def too_many(stage: Stage) -> None:
    with stage.daemon("--puts-limit", "1") as daemon:
        with slow_put(daemon.client):
            until_refused(daemon)
            stage.fires(lambda: [put(daemon.client, "org/more", 10) for _ in range(5)])
        stage.clears()


def until_refused(daemon: Daemon) -> None:
    """Until the slow put is under way."""
    while put(daemon.client, "org/more", 10) != 429:
        time.sleep(0.01)


@contextmanager
def slow_put(client: Client) -> Iterator[None]:
    """A put that goes on for as long as this lasts, and then comes to its end."""
    over = threading.Event()

    def body() -> Iterator[bytes]:
        while not over.wait(0.2):
            yield b"more"
        yield b"end"

    def send() -> None:
        try:
            answers.append(client.call("PUT", f"/v1/models/org/slow?bytes={MB}", body()).status)
        except GONE:
            answers.append(0)

    answers: list[int] = []
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
    assert answers == [201]
