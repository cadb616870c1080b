"""One client of a storm: does everything at random, and looks whether what it sees may be.

    python -m tests.system.storm_client NAME SEED LOG ADMIN_SOCKET REPLICA_SOCKET

It ends when its stdin does, with nothing held.  It may be killed at any instant,
so what it knows it writes down at once: a JSON object a line in LOG, what it is
about to do before it does it.  What must not be ends it with a traceback.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.system.daemon import Answer, Client
from tests.system.models import Content
from tests.system.storm_grips import Flock, Gone, Grip, Hold, Mapping
from tests.system.storm_models import KEYS, VARIANTS, content, content_of

NEVER_FITS: Final = 1 << 40
GRIPS: Final = 3
PINS: Final = 2
PIECE: Final = 32 << 10
TAR: Final = {"Content-Type": "application/x-tar"}
TEXT: Final = {"Accept": "text/plain"}

_MISS: Final = ("not-resident",)
_PUT: Final = ("blocked", "exists", "too-many")


class StormClient:
    """Seeded; what comes of it is also the others' and the machine's doing."""

    def __init__(self, name: str, seed: int, log: int, admin: Client, replica: Client) -> None:
        self._name = name
        self._chance = random.Random(seed)
        self._log = log
        self._admin = admin
        self._replica = replica
        self._grips: list[Grip] = []
        self._pins: dict[str, tuple[Grip, float | None]] = {}
        # A pin belongs to the door that it was taken at.
        self._pinning = self._reader()
        self._acts: tuple[tuple[int, Callable[[], str]], ...] = (
            (10, self._put),
            (1, self._put_too_large),
            (2, self._put_half),
            (4, self._get),
            (6, self._map),
            (3, self._flock),
            (6, self._pin),
            (4, self._unpin),
            (2, self._delete),
            (4, self._content),
            (2, self._verify),
            (2, self._ask_admission),
            (2, self._look_around),
            (1, self._events),
            (6, self._look_at_grips),
            (6, self._let_a_grip_go),
        )

    def run(self) -> None:
        weights = [weight for weight, _ in self._acts]
        while not self._told(self._chance.choice((0.0, 0.0, 0.02, 0.1))):
            _, act = self._chance.choices(self._acts, weights)[0]
            self._note(act=act.__name__.strip("_"), outcome=act())
        self._end()

    def _end(self) -> None:
        for grip in self._grips:
            grip.look()
            grip.let_go()
        for key in list(self._pins):
            self._let_go(key)
        self._note(act="end", outcome="end")

    # -- Acts, each answering its outcome in a word -------------------------------

    def _put(self) -> str:
        key = self._key()
        wanted = content(key, self._chance.randrange(VARIANTS))
        headers = dict(TAR) if wanted.archive else {}
        if self._chance.random() < 0.1:
            headers["If-None-Match"] = self._chance.choice(("*", f'"{wanted.digest}"'))
        query = []
        if not wanted.archive and self._chance.random() < 0.3:
            query.append(f"sha256={hashlib.sha256(wanted.body).hexdigest()}")
        if self._chance.random() < 0.3:
            query.append(f"wait={self._chance.choice((0.2, 1, 3))}")
        body = self._send_as(wanted.body, headers, query)
        try:
            answer = self._admin.call("PUT", f"/v1/models/{key}?{'&'.join(query)}", body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # A refused body is given up when it stops: this process was made to stand still.
            return "cut"
        if answer.status in (200, 201):
            assert answer.json()["digest"] == wanted.digest, answer
            return str(answer.status)
        return _refused(answer, *_PUT)

    def _send_as(
        self, body: bytes, headers: dict[str, str], query: list[str]
    ) -> bytes | Iterator[bytes]:
        """At once, or slowly: of a length that is told, that is declared, or that nobody knows."""
        if self._chance.random() < 0.6:
            return body
        style = self._chance.choice(("told", "declared", "unknown"))
        if style == "told":
            headers["Content-Length"] = str(len(body))
        elif style == "declared":
            query.append(f"bytes={len(body)}")
        return self._pieces(body)

    def _pieces(self, body: bytes) -> Iterator[bytes]:
        for first in range(0, len(body), PIECE):
            self._told(self._chance.choice((0.0, 0.0, 0.01, 0.05)))
            yield body[first : first + PIECE]

    def _put_too_large(self) -> str:
        answer = self._admin.call("PUT", f"/v1/models/{self._key()}?bytes={NEVER_FITS}", iter(()))
        return _refused(answer, "too-large", "too-many")

    def _put_half(self) -> str:
        """Begin a put, and go away in the middle of its body."""
        key = self._key()
        body = content(key, 0).body
        head = f"PUT /v1/models/{key} HTTP/1.1\r\nHost: w\r\nContent-Length: {len(body)}\r\n\r\n"
        with closing(self._connected(self._admin)) as sock:
            try:
                sock.sendall(head.encode() + body[: len(body) // 2])
            except (BrokenPipeError, ConnectionResetError):
                return "cut"
            self._told(self._chance.choice((0.0, 0.1, 0.3)))
        return "half"

    def _get(self) -> str:
        key = self._key()
        method = self._chance.choice(("GET", "GET", "HEAD"))
        answer = self._reader().call(method, f"/v1/models/{key}")
        if answer.status == 200 and method == "GET":
            record = answer.json()
            found = content_of(key, record["digest"])
            listed = {(one["path"], one["bytes"]) for one in record["files"]}
            assert listed == {(path, len(data)) for path, data in found.files}, record
        return str(answer.status) if answer.status in (200, 404) else _refused(answer)

    def _map(self) -> str:
        return self._grip(
            lambda path, found: Mapping(
                path, found, self._chance.choice([name for name, data in found.files if data])
            )
        )

    def _flock(self) -> str:
        return self._grip(self._chance.choice((Hold, Hold, Flock)))

    def _grip(self, take: Callable[[Path, Content], Grip]) -> str:
        """Ask for a path as a shell does, and rely on it without a pin."""
        if len(self._grips) >= GRIPS:
            return self._let_a_grip_go()
        key = self._key()
        answer = self._reader().call("GET", f"/v1/models/{key}", headers=TEXT)
        if answer.status != 200:
            return _refused(answer, *_MISS)
        path = Path(answer.body.decode())
        found = content_of(key, path.parent.name.rpartition(".")[2])
        try:
            grip = take(path, found)
        except Gone:
            return "gone"
        grip.look()
        self._grips.append(grip)
        return "taken"

    def _pin(self) -> str:
        """Pin something, or renew what is pinned already."""
        if len(self._pins) >= PINS:
            return self._renew(self._chance.choice(list(self._pins)))
        key = self._key()
        if key in self._pins:
            return self._renew(key)
        ttl = self._chance.choice((None, 1.0, 5.0))
        answer = self._ask_pin(key, ttl, None)
        if answer.status == 404:
            return _refused(answer, *_MISS)
        assert answer.status == 201, answer
        return "pinned"

    def _renew(self, key: str) -> str:
        grip, ttl = self._pins.pop(key)
        grip.look()
        answer = self._ask_pin(key, ttl, grip.content)
        if not grip.lapsed or answer.status == 200:
            assert answer.status == 200, (answer, grip.until, time.monotonic())
            assert answer.json()["digest"] == grip.content.digest, answer
        return "renewed"

    def _ask_pin(self, key: str, ttl: float | None, had: Content | None) -> Answer:
        self._note(pin=key, state="asking", ttl=ttl, digest=had and had.digest)
        asked = time.monotonic()
        query = "" if ttl is None else f"?ttl={ttl}"
        answer = self._pinning.call("PUT", f"/v1/pins/{self._name}/{key}{query}")
        if answer.status in (200, 201):
            record = answer.json()
            self._note(pin=key, state="has", ttl=ttl, digest=record["digest"])
            until = None if ttl is None else asked + ttl
            grip = Grip(Path(record["path"]), content_of(key, record["digest"]), until)
            grip.look()
            self._pins[key] = grip, ttl
        else:
            self._note(pin=key, state="gone", ttl=ttl, digest=None)
        return answer

    def _unpin(self) -> str:
        if self._pins:
            return self._let_go(self._chance.choice(list(self._pins)))
        answer = self._pinning.call("DELETE", f"/v1/pins/{self._name}/{self._key()}")
        return _refused(answer, "not-pinned")

    def _let_go(self, key: str) -> str:
        grip, ttl = self._pins.pop(key)
        grip.look()
        self._note(pin=key, state="letting", ttl=ttl, digest=grip.content.digest)
        answer = self._pinning.call("DELETE", f"/v1/pins/{self._name}/{key}")
        assert answer.status == 204 or grip.lapsed, answer
        self._note(pin=key, state="gone", ttl=ttl, digest=None)
        return str(answer.status)

    def _delete(self) -> str:
        answer = self._admin.call("DELETE", f"/v1/models/{self._key()}")
        return "204" if answer.status == 204 else _refused(answer, *_MISS, "pinned", "in-use")

    def _content(self) -> str:
        """A range of a file's bytes, by the door that streams them."""
        key = self._key()
        name, data = self._chance.choice(content(key, self._chance.randrange(VARIANTS)).files)
        first = self._chance.randrange(max(1, len(data)))
        last = max(first, min(len(data), first + self._chance.choice((1, 1000, 1 << 20))) - 1)
        answer = self._reader().call(
            "GET", f"/v1/content/{key}?file={name}", headers={"Range": f"bytes={first}-{last}"}
        )
        if answer.status not in (200, 206):
            return _refused(answer, *_MISS, "unknown-file", "range-not-satisfiable")
        whole = _file_with(key, name, answer.headers["etag"].strip('"'))
        part = whole[first : last + 1] if answer.status == 206 else whole
        assert answer.body == part, (key, name, first, last, len(answer.body))
        return str(answer.status)

    def _verify(self) -> str:
        """Nothing is ever damaged here; what is read may go while it is."""
        answer = self._admin.call("POST", f"/v1/verify/{self._key()}")
        if answer.status != 200:
            return _refused(answer, *_MISS, "too-many")
        last = json.loads(answer.body.splitlines()[-1])
        if last["outcome"] == "failed":
            # It went while this one waited for its turn.
            assert last["verification"]["problem"]["code"] in _MISS, last
        else:
            assert last["outcome"] in ("whole", "gone"), last
        return str(last["outcome"])

    def _ask_admission(self) -> str:
        size = self._chance.choice((1_000, 500_000, 3_000_000, NEVER_FITS))
        verdict = str(self._admin.admission(size, self._key())["verdict"])
        assert (verdict == "too-large") == (size == NEVER_FITS), verdict
        return verdict

    def _look_around(self) -> str:
        path = self._chance.choice(("status", "status", "pins", "models", "evictions"))
        told = self._admin.get(f"/v1/{path}")
        if path == "status":
            promised = told["resident_bytes"] + told["retired_bytes"] + told["reserved_bytes"]
            excess = told["over_budget_bytes"]
            assert promised <= told["capacity_bytes"] + excess, told
        return path

    def _events(self) -> str:
        """Listen for a moment, and go away without a word."""
        with closing(self._connected(self._admin)) as sock:
            sock.sendall(b"GET /v1/events?after=0 HTTP/1.1\r\nHost: w\r\n\r\n")
            sock.settimeout(0.2)
            try:
                while not self._told(0.0) and self._chance.random() < 0.8:
                    assert sock.recv(4096), "the stream of events ended"
            except TimeoutError:
                return "quiet"
        return "heard"

    def _look_at_grips(self) -> str:
        for grip in (*self._grips, *(grip for grip, _ in self._pins.values())):
            grip.look()
        return "whole"

    def _let_a_grip_go(self) -> str:
        if not self._grips:
            return "none"
        grip = self._grips.pop(self._chance.randrange(len(self._grips)))
        grip.look()
        grip.let_go()
        return "let go"

    # -- What they are made of ------------------------------------------------------

    def _key(self) -> str:
        """Some keys are wanted much more than others."""
        return KEYS[int(len(KEYS) * self._chance.random() ** 2)]

    def _reader(self) -> Client:
        """What replicas ask, they ask at either socket."""
        return self._chance.choice((self._admin, self._replica))

    def _told(self, seconds: float) -> bool:
        """Whether it is to end; waits so long for that."""
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    def _note(self, **fields: object) -> None:
        os.write(self._log, json.dumps({"at": time.monotonic(), **fields}).encode() + b"\n")

    def _connected(self, client: Client) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(60.0)
        sock.connect(os.fspath(client.socket))
        return sock


def _refused(answer: Answer, *codes: str) -> str:
    """The code of a refusal, which must be one of these."""
    assert answer.status >= 400, answer
    code = str(answer.json()["code"])
    assert code in codes, answer
    return code


def _file_with(key: str, name: str, sha256: str) -> bytes:
    """The bytes of that hash that some content of ``key`` has under ``name``."""
    for variant in range(VARIANTS):
        data = dict(content(key, variant).files).get(name)
        if data is not None and hashlib.sha256(data).hexdigest() == sha256:
            return data
    raise AssertionError(f"{name} of {key} is answered with {sha256}, which nobody put")


def main() -> None:
    name, seed, log, admin, replica = sys.argv[1:]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    clients = Client(Path(admin)), Client(Path(replica))
    StormClient(name, int(seed), descriptor, *clients).run()


if __name__ == "__main__":
    main()
