"""What does not fit is refused by its listing: no byte is asked for, and nothing goes for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.hub import Hub
from tests.origins.servers.nginx import Nginx
from tests.system.daemon import Client, Daemon, running
from tests.system.fetching import LISTING, fetched, jobs, publish, refused, shards
from tests.system.journal import settled, verify_disk
from tests.system.models import single

MB: Final = 1 << 20
CAPACITY: Final = 8 * MB

HERE: Final = {"idle": 2 * MB, "pinned": 3 * MB}
"""What is here before: one that may go, one that may not."""

TOO_LARGE: Final = shards("too large", 5 * MB, 4 * MB)
BLOCKED: Final = shards("blocked", 3 * MB, 3 * MB)


@pytest.fixture(params=["hub", "listing", "one file"])
def sources(request: pytest.FixtureRequest) -> tuple[str, str, object]:
    """Where what is too large comes from, what is blocked, and the server of both."""
    if request.param == "hub":
        hub: Hub = request.getfixturevalue("hub")
        hub.push("org/large", dict(TOO_LARGE.files))
        hub.push("org/blocked", dict(BLOCKED.files))
        return "hf://org/large", "hf://org/blocked", hub
    nginx: Nginx = request.getfixturevalue("nginx")
    if request.param == "one file":
        for name, size in (("large", 9 * MB), ("blocked", 6 * MB)):
            (nginx.root / name).write_bytes(bytes(size))
        return f"{nginx.url}/large", f"{nginx.url}/blocked", nginx
    publish(nginx.root / "large", TOO_LARGE)
    publish(nginx.root / "blocked", BLOCKED)
    return f"{nginx.url}/large/{LISTING}", f"{nginx.url}/blocked/{LISTING}", nginx


@pytest.mark.needs("nginx", "openssl")
def test_no_byte_is_asked_for_and_nothing_is_evicted(
    root: Path, sources: tuple[str, str, object]
) -> None:
    large, blocked, server = sources
    environ = {"HF_ENDPOINT": server.url} if isinstance(server, Hub) else {}
    with running(root, capacity=CAPACITY, environ=environ) as daemon:
        client = daemon.client
        for key, size in HERE.items():
            assert client.call("PUT", f"/v1/models/{key}", single(key, size).body).status == 201
        assert client.call("PUT", "/v1/pins/replica/pinned?ttl=forever").status == 201
        before = client.status()

        problem = refused(client, "new", large)
        assert (problem["status"], problem["code"]) == (413, "too-large")
        assert (problem["retryable"], problem["capacity"]) == (False, CAPACITY)
        # With patience as without.
        for wait in (0.0, 0.5):
            problem = refused(client, "new", blocked, wait=wait)
            assert (problem["status"], problem["code"]) == (503, "blocked")
            assert (problem["retryable"], problem["reason"]) == (True, "pins")
            assert [one["holder"] for one in problem["holders"]] == ["replica"]
        _nothing_moved(daemon, before)
        assert [job["problem"]["code"] for job in jobs(client)] == [
            "blocked", "blocked", "too-large",
        ]  # fmt: skip
        assert _asked(server) == 0

        # The room is there as soon as the pin is gone, and the origin was not held against it.
        assert client.call("DELETE", "/v1/pins/replica/pinned").status == 204
        fetched(client, "new", blocked)
        assert _asked(server) > 0
        assert _keys(client) <= {"new", "pinned"}
        verify_disk(daemon, settled(daemon))
        assert daemon.stop() == 0


def _nothing_moved(daemon: Daemon, before: dict[str, object]) -> None:
    status = settled(daemon)
    for figure in ("evictions", "evicted_bytes", "used_bytes", "free_bytes", "partials", "models"):
        assert status[figure] == before[figure], figure
    assert status["evictions"] == 0
    assert daemon.client.get("/v1/evictions")["evictions"] == []
    assert _keys(daemon.client) == set(HERE)
    verify_disk(daemon, status)


def _keys(client: Client) -> set[str]:
    return {record["key"] for record in client.get("/v1/models")["models"]}


def _asked(server: object) -> int:
    """How often bytes of weights were asked for."""
    if isinstance(server, Hub):
        return len(server.bodies())
    assert isinstance(server, Nginx)
    answers = [one for one in server.answered() if not one.path.endswith(LISTING)]
    return sum(one.method != "HEAD" for one in answers)
