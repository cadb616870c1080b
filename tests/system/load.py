"""Threads that put, replace, get, pin, unpin and delete, each writing down what it was told.

Every thread has keys of its own, so that it knows what each must be; a few
keys are everybody's, of which it is only known that what is answered is whole.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.system.daemon import GONE, Client
from tests.system.journal import Journal, Life, Refused
from tests.system.models import Content, directory, single

KEYS: Final = 4
"""How many keys a thread has of its own."""

SIZES: Final = (1, 5_000, 70_000, 262_144)
SHARED: Final = ("shared/one", "shared/two")
_SHARED_CONTENTS: Final = tuple(single(key, 40_000, seed) for key in SHARED for seed in range(3))


class Worker:
    """One client, seeded.  It ends when the daemon is gone, or when it is told to.

    ``evicting`` says that the budget is tight: any arrival may then cost what
    is not pinned.  ``failure`` is what it saw that must not be.
    """

    def __init__(self, name: str, seed: int, client: Client, *, evicting: bool) -> None:
        self.name = name
        self.keys = tuple(f"{name}/model-{number}" for number in range(KEYS))
        self.journal = Journal()
        self.acknowledged = 0
        self.refused = 0
        self.failure: BaseException | None = None
        self._random = random.Random(seed)
        self._life = Life(client, self.journal)
        self._evicting = evicting
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def take_over(self, journal: Journal) -> None:
        """Go on with what is known of this thread's keys."""
        for key in self.keys:
            self.journal.models[key] = set(journal.models.get(key, {None}))
        for name, allowed in journal.pins.items():
            if name[1] in self.keys:
                self.journal.pins[name] = set(allowed)

    def start(self) -> None:
        self._thread.start()

    def tell(self) -> None:
        """Ask it to end after what it is doing."""
        self._told.set()

    def join(self) -> None:
        """Wait for its end, and raise what it saw that must not be."""
        self._thread.join(90)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise AssertionError(f"{self.name} saw what must not be") from self.failure

    def _run(self) -> None:
        acts = (self._put, self._put, self._get, self._get, self._pin, self._unpin, self._delete)
        try:
            while not self._told.is_set():
                self._once(self._random.choice((*acts, self._use_shared)))
        except GONE:
            return
        except BaseException as failure:  # noqa: BLE001 - whoever waits for the thread raises it
            self.failure = failure

    def _once(self, act: object) -> None:
        assert callable(act)
        if self._evicting:
            self.journal.may_be_evicted(self.keys)
        try:
            act(self._random.choice(self.keys))
            self.acknowledged += 1
        except Refused as refused:
            self._check_refusal(refused)
            self.refused += 1

    def _check_refusal(self, refused: Refused) -> None:
        """On a tight budget much is refused; on one with room, only what is asked in vain."""
        code = refused.answer.json()["code"]
        assert code in {"blocked", "pinned", "in-use", "not-resident", "not-pinned"}, refused
        assert code != "blocked" or self._evicting, refused

    def _put(self, key: str) -> None:
        size, seed = self._random.choice(SIZES), self._random.randrange(3)
        make = directory if self._random.random() < 0.3 else single
        self._life.put(key, make(key, size, seed))

    def _get(self, key: str) -> None:
        allowed = self.journal.models.get(key, {None})
        answer = self._life.client.call("GET", f"/v1/models/{key}")
        assert answer.status in {200, 404}, answer
        found = answer.json()["digest"] if answer.status == 200 else None
        assert found in {one and one.digest for one in allowed}, (key, found, allowed)
        self.journal.models[key] = {one for one in allowed if (one and one.digest) == found}

    def _pin(self, key: str) -> None:
        self._get(key)
        if self.journal.models[key] != {None}:
            # Between the look and the pin it may be evicted, and is then not found.
            self._life.pin(self.name, key, self._random.choice(("", "600")))

    def _unpin(self, key: str) -> None:
        self._life.unpin(self.name, key)

    def _delete(self, key: str) -> None:
        self._life.delete(key)

    def _use_shared(self, key: str) -> None:
        """What several do at once with one key; any of it may be refused."""
        client = self._life.client
        shared = self._random.choice(SHARED)
        content = self._random.choice(
            [one for one in _SHARED_CONTENTS if one.files[0][0] == shared.rpartition("/")[2]]
        )
        method, body = self._random.choice(
            (("PUT", content.body), ("PUT", content.body), ("GET", None), ("DELETE", None))
        )
        answer = client.call(method, f"/v1/models/{shared}", body)
        assert answer.status < 500 or answer.status == 503, answer


def shared_contents() -> dict[str, Content]:
    """What the shared keys may be, by digest."""
    return {content.digest: content for content in _SHARED_CONTENTS}


@contextmanager
def working(workers: Sequence[Worker]) -> Iterator[None]:
    """Threads that work until the context is left; then what any of them saw is raised."""
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.tell()
    for worker in workers:
        worker.join()
