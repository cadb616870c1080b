"""Each call of the API as the request that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from weightd.client.effects import Body, Request
from weightd.client.http1 import quoted

Ttl: TypeAlias = "float | Literal['forever'] | None"
"""Seconds until a pin lapses unless it is renewed; forever outlives a reboot; None neither."""

WAIT_MAX: Final = 3600.0
"""The most that one request may wait, in seconds."""

PATIENCE: Final = 60.0
"""How long a request that waits for nothing may go unanswered, in seconds."""

PUT_PATIENCE: Final = 900.0
"""The same for a put, for which victims are unlinked first and files are flushed at last."""

COMMIT_PATIENCE: Final = 7200.0
"""The same for a commit, which reads and flushes all of a large model."""

TAR: Final = "application/x-tar"

_JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}


def get(key: str) -> Request:
    return Request("GET", _model(key))


def peek(key: str) -> Request:
    """Ask whether a model is here; the answer has no body."""
    return Request("HEAD", _model(key))


def models(limit: int, after: str | None = None) -> Request:
    return Request("GET", "/v1/models" + _query(limit=limit, after=after))


def delete(key: str) -> Request:
    return Request("DELETE", _model(key))


class Named(Protocol):
    """A file that is announced."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...


class PutTerms(NamedTuple):
    """What a put says of its body: see the README's chapter on curl.

    ``wait`` is in seconds, ``unless`` the digest with which nothing is sent.
    """

    archive: bool = False
    file: str | None = None
    sha256: str | None = None
    create_only: bool = False
    unless: str | None = None
    wait: float = 0.0


def put(key: str, body: Body, terms: PutTerms) -> Request:
    headers = {"Content-Type": TAR if terms.archive else "application/octet-stream"}
    if terms.create_only:
        headers["If-None-Match"] = "*"
    elif terms.unless is not None:
        headers["If-None-Match"] = f'"{terms.unless}"'
    wait = _wait(terms.wait)
    target = _model(key) + _query(file=terms.file, sha256=terms.sha256, wait=wait)
    return Request("PUT", target, headers, body=body, patience=PUT_PATIENCE + (wait or 0.0))


def begin_upload(key: str, files: Sequence[Named], terms: PutTerms) -> Request:
    """Promise room for files that this process writes; see `weightd.client.putting`."""
    announced: list[dict[str, Any]] = [{"path": one.name, "bytes": one.size} for one in files]
    if terms.sha256 is not None:
        announced[0]["sha256"] = terms.sha256
    wait = _wait(terms.wait)
    target = "/v1/uploads" + _query(wait=wait)
    told = _json({"key": key, "files": announced})
    return Request("POST", target, _JSON, told, patience=PUT_PATIENCE + (wait or 0.0))


def commit_upload(id: str) -> Request:
    return Request("POST", f"/v1/uploads/{quoted(id)}/commit", patience=COMMIT_PATIENCE)


def end_upload(id: str) -> Request:
    return Request("DELETE", f"/v1/uploads/{quoted(id)}")


class Offered(Protocol):
    """A file that is adopted; see `weightd.client.offering.Offer`."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str | None: ...
    @property
    def trusted(self) -> bool: ...
    @property
    def keep(self) -> bool: ...
    @property
    def copy(self) -> bool: ...


class Whole(Protocol):
    """All of what is adopted, and where it came from once."""

    @property
    def files(self) -> Sequence[Offered]: ...
    @property
    def source(self) -> str | None: ...
    @property
    def revision(self) -> str | None: ...


def adopt(key: str, offering: Whole, wait: float) -> Request:
    """Make a model of files where they are; see `weightd.client.adopting`."""
    files: list[dict[str, Any]] = []
    for one in offering.files:
        told: dict[str, Any] = {"path": one.name, "place": one.place, "bytes": one.size}
        more = {
            "sha256": one.sha256,
            "trusted": one.trusted,
            "keep": one.keep,
            "copy": one.copy,
        }
        files.append(told | {name: value for name, value in more.items() if value})
    asked: dict[str, Any] = {"key": key, "files": files}
    if offering.source is not None:
        asked |= {"source": offering.source, "revision": offering.revision}
    waiting = _wait(wait)
    target = "/v1/adopt" + _query(wait=waiting)
    return Request("POST", target, _JSON, _json(asked), patience=COMMIT_PATIENCE + (waiting or 0.0))


def pin(holder: str, key: str, ttl: Ttl = None, generation: str | None = None) -> Request:
    told = ttl if ttl is None or isinstance(ttl, str) else f"{ttl:.3f}"
    return Request("PUT", _pin(holder, key) + _query(ttl=told, generation=generation))


def unpin(holder: str, key: str) -> Request:
    return Request("DELETE", _pin(holder, key))


def pins() -> Request:
    return Request("GET", "/v1/pins")


def accept_loss() -> Request:
    return Request("POST", "/v1/pins/accept-loss")


class Wanted(NamedTuple):
    """A model to be here, and where it is from if it is not; see `Client.fetch`."""

    key: str
    source: str | Sequence[str]
    digest: str | None = None
    holder: str | None = None
    ttl: Ttl = None
    revalidate: bool = False
    credential: str | None = None


def fetch(wanted: Wanted, wait: float) -> Request:
    told: dict[str, Any] = {
        name: value for name, value in wanted._asdict().items() if value not in (None, False)
    }
    if not isinstance(wanted.source, str):
        told["source"] = list(wanted.source)
    waiting = _wait(wait)
    target = "/v1/fetch" + _query(wait=waiting)
    return Request("POST", target, _JSON, _json(told), patience=PATIENCE + (waiting or 0.0))


def fetches() -> Request:
    return Request("GET", "/v1/fetches")


def job(id: str) -> Request:
    return Request("GET", _job(id))


def cancel(id: str) -> Request:
    return Request("DELETE", _job(id))


def job_events(id: str) -> Request:
    return Request("GET", f"{_job(id)}/events")


def verify(key: str) -> Request:
    """Read a model to the last byte; the answer is a stream."""
    return Request("POST", "/v1/verify/" + quoted(key, "/@"))


def warm(key: str) -> Request:
    """Read a model into the page cache; the answer is a stream."""
    stream = {"Accept": "application/x-ndjson"}
    return Request("POST", "/v1/warm/" + quoted(key, "/@"), stream)


def admission(bytes: int, key: str | None = None) -> Request:
    return Request("POST", "/v1/admission", _JSON, _json({"bytes": bytes, "key": key}))


def status() -> Request:
    return Request("GET", "/v1/status")


def evictions(limit: int, after: int | None = None) -> Request:
    return Request("GET", "/v1/evictions" + _query(limit=limit, after=after))


def events(after: int | None = None) -> Request:
    return Request("GET", "/v1/events" + _query(after=after))


def _model(key: str) -> str:
    return "/v1/models/" + quoted(key, "/@")


def _pin(holder: str, key: str) -> str:
    return f"/v1/pins/{quoted(holder, ':@')}/{quoted(key, '/@')}"


def _job(id: str) -> str:
    return f"/v1/fetches/{quoted(id)}"


def _wait(seconds: float) -> float | None:
    """What one request may wait of what is to be waited."""
    return min(seconds, WAIT_MAX) if seconds > 0 else None


def _query(**given: object) -> str:
    pairs = (f"{name}={quoted(_text(value))}" for name, value in given.items() if value is not None)
    told = "&".join(pairs)
    return f"?{told}" if told else ""


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _json(told: Mapping[str, Any]) -> bytes:
    # Asking for a path sends none, and answers none.
    import json

    return json.dumps(told).encode()
