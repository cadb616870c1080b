"""One fetch: what it is for, how far it is, and who waits for it."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from weightd.cache.admission import Spares
from weightd.cache.fetching.terms import ENDED, FetchResult, FetchState, FetchTerms, FetchView
from weightd.cache.records import Record
from weightd.cache.tasks import Signal
from weightd.errors import TooMany, WeightdError
from weightd.model import Digest, Key
from weightd.origins import parse_reference
from weightd.request_id import REQUEST_ID

RATE_SECONDS: Final = 5.0
"""The rate shown is the mean over so many seconds."""

HOLDERS_MAX: Final = 1024
"""For so many holders of one user a job is pinned at most."""


def fingerprint_of(sources: tuple[str, ...]) -> str:
    """What tells one list of sources from another, and no secret in them."""
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class Caller:
    """One who asked, and stays until ``until`` (on the loop's clock) at most."""

    terms: FetchTerms
    until: float
    here: bool = True
    pinned: bool = False
    record: Record | None = None
    """What was pinned for it."""
    failure: WeightdError | None = None
    """Why its pin could not be taken."""


@dataclass(slots=True, eq=False)
class Job:
    """One key on its way.  ``order`` is its place in the queue; ``preload`` goes after all others.

    ``place`` is that among the preloads.  ``spares`` says what it must not
    evict.  ``asked_at`` is when somebody last asked for it or about it, on the
    loop's clock.  ``uid`` is the user who began it at the replica door.
    ``fingerprint`` stands for ``sources``, also after a restart, which forgets
    what is secret in them.
    """

    key: Key
    sources: tuple[str, ...]
    digest: Digest | None
    credential: str | None
    created_at: float
    order: int
    asked_at: float
    uid: int | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    preload: bool = False
    place: int = 0
    spares: Spares | None = None
    state: FetchState = "queued"
    source: str = ""
    fingerprint: str = ""
    revision: str | None = None
    validators: tuple[tuple[str, str], ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    retry_at: float | None = None
    attempts: int = 0
    bytes_total: int | None = None
    needed: int | None = None
    """How many bytes of blocks it asked for when it asked for room last."""
    bytes_done: int = 0
    bytes_reused: int = 0
    error: WeightdError | None = None
    record: Record | None = None
    result: FetchResult | None = None
    """What came of it, once the model is here and pinned."""
    cancelled: str | None = None
    """Why it was ended from outside; None while it is not, also when it is only parked."""
    callers: list[Caller] = field(default_factory=list)
    changed: Signal = field(default_factory=Signal)
    request: str | None = field(default_factory=REQUEST_ID.get)
    """The request that began it."""
    _progress: deque[tuple[float, int]] = field(default_factory=deque)
    _followers: int = 0

    def __post_init__(self) -> None:
        self.source = self.source or self.sources[0]
        self.fingerprint = self.fingerprint or fingerprint_of(self.sources)

    @property
    def secret(self) -> bool:
        """Whether its sources say more than is shown, or did before a restart."""
        return fingerprint_of(self.shown) != self.fingerprint

    @property
    def shown(self) -> tuple[str, ...]:
        """Its sources without anything secret."""
        return tuple(parse_reference(source).text for source in self.sources)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def waited_for(self) -> bool:
        """Whether a caller stays until it is here."""
        return any(caller.here for caller in self.callers)

    @property
    def awaited(self) -> bool:
        """Whether a replica is about to map it; see `Awaited`, may be called by any thread.

        One is while its request waits, or while it follows the job to its end.  Nobody is about
        to map what is preloaded, nor what was asked for by one who left, whoever it is pinned for.
        """
        waiting = (caller.here and caller.terms.wait > 0 for caller in self.callers)
        return self._followers > 0 or any(waiting)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Have somebody follow it for the block."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    def join(self, caller: Caller) -> None:
        """Somebody asks for it.  Raises TooMany.

        It is pinned once for a holder who asks again and again, by the terms of the last
        time; those who left without a pin to come leave nothing.
        """
        holder, uid = again = caller.terms.holder, caller.terms.uid
        kept = [
            one
            for one in self.callers
            if one.here
            or (one.terms.holder is not None and (one.terms.holder, one.terms.uid) != again)
        ]
        if holder is not None:
            held = sum(one.terms.holder is not None and one.terms.uid == uid for one in kept)
            if held >= HOLDERS_MAX:
                raise TooMany(what="holders of one user for this fetch", limit=HOLDERS_MAX)
        self.callers = [*kept, caller]

    def turn(self) -> tuple[bool, bool, int, int]:
        """The least is next: those waited for, those nobody waits for, what is preloaded."""
        return self.preload, not self.waited_for, self.place, self.order

    @property
    def holders(self) -> set[str]:
        """Those for whom it will be pinned."""
        return {caller.terms.holder for caller in self.callers if caller.terms.holder is not None}

    def unpinned(self) -> Caller | None:
        """The next caller for whom it is to be pinned."""
        wanting = (one for one in self.callers if one.terms.holder is not None and not one.pinned)
        return next(wanting, None)

    def patience(self, now: float) -> float:
        """How many seconds the most patient caller still waits for room."""
        return max((caller.until - now for caller in self.callers if caller.here), default=0.0)

    def enter(self, state: FetchState) -> None:
        """Go on to the next state."""
        if state != self.state:
            self.state = state
            self.changed.notify()

    async def over(self) -> None:
        """Wait for its end."""
        while not self.ended:
            await self.changed.wait()

    def progressed(self, done: int, now: float) -> None:
        """So many bytes of the model are here by now."""
        self.bytes_done = done
        self._progress.append((now, done))
        while len(self._progress) > 2 and now - self._progress[1][0] >= RATE_SECONDS:
            self._progress.popleft()
        self.changed.notify()

    @property
    def rate(self) -> float:
        """Bytes a second over the last seconds, 0 when none arrive."""
        if self.state != "downloading" or len(self._progress) < 2:
            return 0.0
        (begun, before), (now, done) = self._progress[0], self._progress[-1]
        return max(0.0, (done - before) / (now - begun)) if now > begun else 0.0

    def view(self) -> FetchView:
        """The job as it is seen."""
        rate = self.rate
        left = None if self.bytes_total is None else self.bytes_total - self.bytes_done
        return FetchView(
            id=self.id,
            key=self.key,
            sources=self.shown,
            source=parse_reference(self.source).text,
            state=self.state,
            bytes_done=self.bytes_done,
            bytes_total=self.bytes_total,
            bytes_reused=self.bytes_reused,
            rate=rate,
            eta=left / rate if left is not None and rate > 0 else None,
            callers=sum(caller.here for caller in self.callers),
            attempts=self.attempts,
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            retry_at=self.retry_at,
            revision=self.revision,
            error=self.error,
            record=self.record,
        )
