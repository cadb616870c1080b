"""Servers that lie, break off and refuse: what can come comes, the rest ends as it is documented.

Every story is a model of its own on one server, all fetched by one daemon at once.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import pytest

from tests.origins.servers.liar import Liar
from tests.origins.servers.nginx import Nginx
from tests.polling import until
from tests.system import lying
from tests.system.daemon import Client, Daemon, running
from tests.system.fetching import LISTING, ask, fetched, jobs, publish, refused, shards
from tests.system.journal import settled, verify_disk
from tests.system.lying import Library, Lie
from tests.system.models import BLOCK, Content, weights_on_disk
from weightd.units import round_up

CAPACITY: Final = 64_000_000
SIZES: Final = (200_000, 300_000)
BAD: Final = "shard-2.safetensors"
"""The file that the lies are about."""

GOOD: Final = ("config.json", "shard-1.safetensors")

KEPT: Final = 3
"""How many connections may have been kept, on which nobody answers when they are used again."""

OPTIONS: Final = ("--idle-timeout", "2s", "--fetch-concurrency", "16")


@dataclass(frozen=True, slots=True)
class Story:
    """What is told of the bad file, and what becomes of the fetch."""

    lies: Iterable[Lie]
    asked: int
    """How often the bad file is asked for until then, ..."""

    more: int = 0
    """... and how much more often it may be: on a connection that was kept, at once anew."""

    problem: Mapping[str, object] = field(default_factory=dict)


MENDS: Final = {
    "closes-half-way": Story([lying.closes_half_way] * 3, 4),
    "closes-at-once": Story([lying.closes_at_once] * 2, 3),
    "stalls-once": Story([lying.stalls_half_way], 2),
    "knows-no-ranges": Story([lying.closes_half_way, lying.knows_no_ranges], 3, more=1),
    "too-many": Story([lying.too_many(1)], 2),
    "a-wrong-byte-once": Story([lying.a_wrong_byte], 2),
    "of-another-length-once": Story([lying.of_another_length], 2),
}
"""Stories that end well."""


def _model(name: str) -> Content:
    return shards(name, *SIZES)


def _asked(library: Library, name: str) -> Counter[str]:
    """How often each file of a model was asked for."""
    start = f"/{name}/"
    return Counter(path.removeprefix(start) for path in library.asked if path.startswith(start))


def test_what_can_come_comes(root: Path, liar: Liar) -> None:
    library = Library(liar, before_lying=lambda name: until(lambda: _good_is_here(root, name)))
    sources = {
        name: library.add(name, _model(name), {BAD: iter(story.lies)})
        for name, story in MENDS.items()
    }
    with running(root, capacity=CAPACITY, options=OPTIONS) as daemon:
        with ThreadPoolExecutor(len(sources)) as pool:
            told = {
                name: pool.submit(fetched, daemon.client, name, source)
                for name, source in sources.items()
            }
            records = {name: each.result() for name, each in told.items()}
        for name, story in MENDS.items():
            assert _model(name).is_at(Path(records[name]["path"])), name
            asked = _asked(library, name)
            assert story.asked <= asked.pop(BAD) <= story.asked + story.more, name
            assert asked == Counter(dict.fromkeys(GOOD, 1)), name
        status = settled(daemon)
        verify_disk(daemon, status)
        assert (status["models"], status["partials"]) == (len(MENDS), 0)
        assert daemon.stop() == 0


REFUSED: Final = {
    "closes-always": Story(
        repeat(lying.closes_at_once), 5, KEPT, {"code": "origin-failed", "status": 502}
    ),
    "stalls-always": Story(
        repeat(lying.stalls_at_once), 5, 0, {"code": "origin-timeout", "status": 504}
    ),
    "of-another-length-always": Story(
        repeat(lying.of_another_length), 2, 0, {"code": "origin-changed", "status": 502}
    ),
    "too-many-for-long": Story(
        repeat(lying.too_many(3000)), 1, 0, {"code": "origin-failed", "http_status": 429}
    ),
    "forbidden": Story(
        repeat(lying.forbidden),
        1,
        0,
        {"code": "origin-failed", "http_status": 403, "status": 502, "retryable": False},
    ),
    "to-metadata": Story(
        repeat(lying.to_metadata),
        1,
        0,
        {"code": "origin-failed", "status": 502, "retryable": False},
    ),
    "a-wrong-byte-always": Story(
        repeat(lying.a_wrong_byte), 2, 0, {"code": "digest-mismatch", "status": 422, "file": BAD}
    ),
}
"""Stories that end badly."""


def test_the_rest_ends_as_documented_and_goes_on_later(root: Path, liar: Liar) -> None:
    library = Library(liar, before_lying=lambda name: until(lambda: _good_is_here(root, name)))
    sources = {
        name: library.add(name, _model(name), {BAD: iter(story.lies)})
        for name, story in REFUSED.items()
    }
    with running(root, capacity=CAPACITY, options=OPTIONS) as daemon:
        with ThreadPoolExecutor(len(sources)) as pool:
            told = {
                name: pool.submit(refused, daemon.client, name, source)
                for name, source in sources.items()
            }
            problems = {name: each.result() for name, each in told.items()}
        for name, story in REFUSED.items():
            problem = problems[name]
            assert {one: problem[one] for one in story.problem} == story.problem, (name, problem)
            assert 0 <= _asked(library, name)[BAD] - story.asked <= story.more, name
            (job,) = jobs(daemon.client, name)
            assert (job["state"], job["problem"]["code"]) == ("failed", problem["code"])
            assert job["retry_at"] is not None
        _tells_both_digests(problems["a-wrong-byte-always"], _model("a-wrong-byte-always"))
        assert 2900 < _resting(daemon.client, "too-many-for-long") <= 3000
        _nothing_to_be_seen(daemon)
        daemon.kill()
    with running(root, capacity=CAPACITY, options=OPTIONS) as daemon:
        _nothing_to_be_seen(daemon)
        # The origin is well again.
        library.lies.clear()
        library.asked.clear()
        for name, source in sources.items():
            _comes(daemon.client, name, source)
        _only_what_was_missing(library)
        # What is not waited for any more can be given up.
        (job,) = jobs(daemon.client, "too-many-for-long")
        assert daemon.client.status()["partials"] == 1
        assert daemon.client.call("DELETE", f"/v1/fetches/{job['id']}").status == 204
        status = settled(daemon)
        verify_disk(daemon, status)
        assert (status["models"], status["partials"]) == (len(REFUSED) - 1, 0)
        assert daemon.stop() == 0


def test_one_that_always_breaks_off_and_gives_no_part_is_given_up(root: Path, liar: Liar) -> None:
    """Whatever of it comes, nothing ever comes of it."""
    library = Library(liar, before_lying=lambda name: until(lambda: _good_is_here(root, name)))
    lies = repeat(lying.breaks_off_and_knows_no_ranges)
    source = library.add("m", _model("m"), {BAD: lies})
    with running(root, capacity=CAPACITY, options=OPTIONS) as daemon:
        problem = refused(daemon.client, "m", source)
        assert (problem["code"], problem["http_status"]) == ("origin-failed", 200)
        assert _asked(library, "m")[BAD] <= 12
        library.lies.clear()
        library.asked.clear()
        until(lambda: ask(daemon.client, "m", source).status == 200)
        assert _asked(library, "m") == Counter({BAD: 1})
        verify_disk(daemon, settled(daemon))
        assert daemon.stop() == 0


@pytest.mark.needs("nginx", "openssl")
def test_a_mirror_brings_what_the_first_source_does_not(
    root: Path, liar: Liar, nginx: Nginx
) -> None:
    stories = {
        "forbidden": lying.forbidden,
        "a-wrong-byte": lying.a_wrong_byte,
        "too-many-for-long": lying.too_many(3000),
    }
    library = Library(liar, before_lying=lambda name: until(lambda: _good_is_here(root, name)))
    with running(root, capacity=CAPACITY, options=OPTIONS) as daemon:
        for name, lie in stories.items():
            first = library.add(name, _model(name), {BAD: repeat(lie)})
            publish(nginx.root / name, _model(name))
            mirror = f"{nginx.url}/{name}/{LISTING}"
            record = fetched(daemon.client, name, [first, mirror])
            assert record["source"] == mirror
            assert _model(name).is_at(Path(record["path"])), name
        verify_disk(daemon, settled(daemon))
        assert daemon.stop() == 0
    weights = [one.path for one in nginx.answered() if not one.path.endswith(LISTING)]
    assert weights == [f"/{name}/{BAD}" for name in stories]


def _good_is_here(root: Path, name: str) -> bool:
    """Whether everything but the bad file has been written."""
    there = {path.name: path.stat() for path in (root / "incoming").glob(f"*/{name}/*")}
    sizes = {path: len(data) for path, data in _model(name).files if path in GOOD}
    return all(
        path in there and there[path].st_blocks * 512 >= size for path, size in sizes.items()
    )


def _tells_both_digests(problem: Any, model: Content) -> None:
    right = dict(model.files)[BAD]
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 1
    assert problem["expected"] == hashlib.sha256(right).hexdigest()
    assert problem["actual"] == hashlib.sha256(wrong).hexdigest()


def _resting(client: Client, name: str) -> float:
    """For how many seconds the origin of a model is not asked again."""
    (job,) = jobs(client, name)
    return (
        datetime.fromisoformat(job["retry_at"]) - datetime.fromisoformat(job["ended_at"])
    ).total_seconds()


def _nothing_to_be_seen(daemon: Daemon) -> None:
    """What came is counted and kept, and of no model is there half."""
    status = daemon.client.status()
    assert (status["models"], status["partials"]) == (0, len(REFUSED))
    assert (status["reserved_bytes"], status["arrivals"]) == (0, 0)
    good = sum(round_up(len(data), BLOCK) for path, data in _model("").files if path in GOOD)
    assert status["used_bytes"] == status["parked_bytes"]
    assert status["used_bytes"] == good * len(REFUSED)
    disk = sum(occupied for _, occupied in weights_on_disk(daemon.root).values())
    assert status["used_bytes"] == disk
    assert os.listdir(daemon.root / "models") == []
    for name in REFUSED:
        assert daemon.client.call("GET", f"/v1/models/{name}").status == 404


def _comes(client: Client, name: str, source: str) -> None:
    """It comes, once its origin has rested; where that takes long, nobody is asked before."""
    if name == "too-many-for-long":
        answer = ask(client, name, source)
        assert answer.json()["http_status"] == 429
        assert 2000 < int(answer.headers["retry-after"]) <= 3000
        return
    until(lambda: ask(client, name, source).status == 200)
    path = Path(client.get(f"/v1/models/{name}")["path"])
    assert _model(name).is_at(path), name


def _only_what_was_missing(library: Library) -> None:
    for name in REFUSED:
        expected = Counter() if name == "too-many-for-long" else Counter({BAD: 1})
        assert _asked(library, name) == expected, name
