"""What happens on a node, so that every figure has something to tell."""

from __future__ import annotations

from tests.api.origin import http_origin
from tests.system.daemon import Client
from tests.system.fetching import ask, fetched

MB = 10**6
CAPACITY = 10 * MB


def put(client: Client, key: str, size: int = MB, query: str = "") -> int:
    """Put a model of content of its own; the status of the answer."""
    body = (key.encode() * (size // len(key) + 1))[:size]
    return client.call("PUT", f"/v1/models/{key}{query}", body).status


def get(client: Client, key: str) -> int:
    return client.call("GET", f"/v1/models/{key}").status


def live(client: Client) -> None:
    """Hits, misses, evictions, one that is regretted, a pin, fetches, and every refusal of room."""
    for number in range(4):
        assert put(client, f"org/{number}", 3 * MB) == 201
    assert get(client, "org/0") == 404, "it went for the last"
    assert put(client, "org/0", 3 * MB) == 201, "and is regretted"
    assert get(client, "org/3") == 200
    assert put(client, "org/huge", CAPACITY + MB) == 413
    assert client.call("PUT", "/v1/pins/pod/org/3").status == 201
    with http_origin() as origin:
        for _ in range(2):
            fetched(client, "org/fetched", origin.file("m.bin", bytes(MB)))
        assert ask(client, "org/absent", f"{origin.url}/absent.bin").status == 502


def go_on(client: Client) -> None:
    """The same in short, again and again, since what is told of the last minutes passes."""
    for key in ("org/0", "org/1"):
        put(client, key, 6 * MB)
        get(client, key)
    get(client, "org/never")
    put(client, "org/huge", CAPACITY + MB)
