"""Fetches as a daemon is asked for them, and the places that it fetches from."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.origins.servers.nginx import Answered
from tests.system.daemon import Answer, Client
from tests.system.models import Content

LISTING: Final = "model.json"


def ask(
    client: Client, key: str, source: str | Sequence[str], wait: float = 60.0, **more: Any
) -> Answer:
    """Ask for a model and wait until it is here, or why it is not."""
    asked = json.dumps({"key": key, "source": source, **more}).encode()
    return client.call("POST", f"/v1/fetch?wait={wait:g}", asked)


def fetched(client: Client, key: str, source: str | Sequence[str], **more: Any) -> Any:
    """The record of a model that must come."""
    answer = ask(client, key, source, **more)
    assert answer.status == 200, answer
    return answer.json()


def refused(client: Client, key: str, source: str | Sequence[str], **more: Any) -> Any:
    """The problem of a fetch that must not succeed."""
    answer = ask(client, key, source, **more)
    assert answer.headers["content-type"] == "application/problem+json", answer
    problem = answer.json()
    assert problem["status"] == answer.status
    return problem


def jobs(client: Client, key: str | None = None) -> list[Any]:
    """Every job, or those of a key, the newest first."""
    told = client.get("/v1/fetches")["fetches"]
    return [job for job in told if key in (None, job["key"])]


def ended(client: Client, id: str) -> Any:
    """A job, once it has ended."""
    told = client.call("GET", f"/v1/fetches/{id}/events").body.splitlines()
    last = json.loads(told[-1])
    assert last["type"] == "end", last
    return last["job"]


def publish(place: Path, content: Content, hashed: bool = True) -> None:
    """Put a model's files, and a listing of them, where a web server gives them out."""
    for path, data in content.files:
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Whoever reads the file that was there goes on reading that one.
        target.unlink(missing_ok=True)
        target.write_bytes(data)
    told = json.dumps(listing(dict(content.files), hashed))
    (place / LISTING).write_text(told)


def sent(answers: Iterable[Answered]) -> int:
    """The bytes of weights that a server sent."""
    return sum(one.bytes for one in answers if not one.path.endswith(LISTING))


def listing(files: Mapping[str, bytes], hashed: bool = True) -> Any:
    """What a listing file tells of files, with their sha256 or without."""
    return {
        "files": [
            {"path": path, "bytes": len(data)}
            | ({"sha256": hashlib.sha256(data).hexdigest()} if hashed else {})
            for path, data in files.items()
        ]
    }


def shards(name: str, *sizes: int) -> Content:
    """A model of one small file and shards of these sizes."""
    source = random.Random(f"{name} {sizes}")
    weights = tuple(
        (f"shard-{number}.safetensors", source.randbytes(size))
        for number, size in enumerate(sizes, 1)
    )
    return Content((("config.json", json.dumps({"name": name}).encode()), *weights))
