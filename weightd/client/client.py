"""The client that blocks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from weightd.client import calls, flows, lookup
from weightd.client.asking import LEASE_SECONDS, PATIENCE, Asking
from weightd.client.blocking import Driver, Transport
from weightd.client.doors import places_of
from weightd.client.effects import Flow
from weightd.client.mount import Mount

if TYPE_CHECKING:
    from weightd.client.faults import LeaseLost
    from weightd.client.holding import Hold, Lease
    from weightd.client.offering import Offering
    from weightd.client.putting import Sent
    from weightd.client.records import (
        Eviction,
        Happening,
        Job,
        Model,
        Pin,
        Pinned,
        Status,
        Verdict,
        Verification,
        Warmed,
        Warming,
    )
    from weightd.model import Key

T = TypeVar("T")


class Client:
    """Everything a daemon on this node does, over its socket; threads may share one.

    ``socket`` is found when it is not named (`weightd.places`).  ``patience`` is
    how long, in seconds, a call goes on when the daemon starts, drains, has too
    many requests or went away.  ``expected`` waits as long for one that was not
    there to begin with.  ``root`` is where the daemon's root is mounted here,
    else ``WEIGHTD_ROOT``, else where the daemon has it.

    Errors are those of `weightd.errors`, and of `weightd.client.faults` where
    the daemon is not reached.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        patience: float = PATIENCE,
        expected: bool = False,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        self._transport = Transport(places_of(socket))
        self._driver = Driver(self._transport)
        self.asking = Asking(patience, expected)
        """How it asks, for flows that are run here."""
        self.mount = Mount(root)
        """Where the daemon's root is, for the same."""

    def close(self) -> None:
        """Close the connections that are kept; a later call opens new ones."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, flow: Flow[T], tell: Callable[[Any], object] | None = None) -> T:
        """Do what `weightd.client.flows` and its like describe; what it tells goes to ``tell``."""
        return self._driver.run(flow, tell)

    # -- Models ------------------------------------------------------------------------

    def get(self, key: Key | str) -> Model | None:
        """Look a model up, which counts and makes it the last used; None on a miss."""
        model: Model | None = self.run(flows.get(self.asking, self.mount, str(key)))
        return model

    def path(self, key: Key | str) -> str:
        """Where a model is, and nothing else about it.  Raises NotResident."""
        return self.run(lookup.path(self.asking, self.mount, str(key)))

    def peek(self, key: Key | str) -> bool:
        """Whether a model is here; neither counts nor touches."""
        return self.run(flows.peek(self.asking, str(key)))

    def models(self) -> list[Model]:
        """All models, without their files, in the order of their keys."""
        return self.run(flows.models(self.asking, self.mount))

    def put(
        self,
        key: Key | str,
        source: str | os.PathLike[str] | bytes,
        *,
        file: str | None = None,
        sha256: str | None = None,
        create_only: bool = False,
        unless: str | None = None,
        wait: float = 0.0,
        progress: Callable[[Sent], object] | None = None,
    ) -> Model:
        """Put a directory, a file, or the bytes of one.

        ``file`` names a single file (else as it is called, or the key's last
        segment for bytes) and ``sha256`` has it verified.  ``unless`` is a
        digest with which nothing is sent.  ``wait`` is how long to wait while
        blocked, in seconds.  ``progress`` is called with what was `Sent`, where
        the files are written by this process (`weightd.client.putting`).

        Raises TooLarge, Blocked, DiskFull, Exists, DigestMismatch, Unsendable, …
        """
        from weightd.client.putting import put

        terms = calls.PutTerms(False, file, sha256, create_only, unless, wait)
        flow = put(self.asking, self.mount, str(key), source, terms)
        return self.run(flow, progress)

    def adopt(
        self,
        key: Key | str,
        source: str | os.PathLike[str],
        *,
        sha256sums: str | os.PathLike[str] | None = None,
        keep: bool = False,
        check: bool = False,
        wait: float = 0.0,
    ) -> Model:
        """Make a model of a directory or a file where it is, on the filesystem of weightd's root.

        The files are renamed and gone from there.  With ``keep`` they stay, as does
        one that has several names, and their blocks are shared, where the
        filesystem can do that.  Hashes come from ``sha256sums``, a list as
        sha256sum writes it, or from a download of the hub's client; the daemon
        reads what is not known, and with ``check`` everything.  ``wait`` is as in `put`.

        For a cache of the hub's client see `weightd.client.hubcache`, whose
        offerings `adopt_offering` takes.  Raises InvalidRequest for a file that can
        be had neither way, Unsendable, InUse, TooLarge, Blocked, DigestMismatch, …
        """
        from weightd.client.offering import offered

        return self.adopt_offering(key, offered(source, sha256sums, keep, check), wait=wait)

    def adopt_offering(
        self, key: Key | str, offering: Callable[[], Offering], *, wait: float = 0.0
    ) -> Model:
        """The same of what ``offering`` finds when it is called."""
        from weightd.client.adopting import adopt

        return self.run(adopt(self.asking, self.mount, str(key), offering, wait))

    def warm(
        self, key: Key | str, *, progress: Callable[[Warming], object] | None = None
    ) -> Warmed:
        """Read a model into the page cache, for whoever is about to map it.

        ``progress`` is called as it goes; leaving ends it.  Raises NotResident.
        """
        from weightd.client.warming import warmed

        return self.run(warmed(self.asking, str(key)), progress)

    def delete(self, key: Key | str) -> None:
        """Evict a model now.  Raises NotResident, Pinned and InUse."""
        self.run(self.asking.nothing(calls.delete(str(key))))

    def fetch(
        self,
        key: Key | str,
        source: str | Sequence[str],
        *,
        wait: float = 0.0,
        digest: str | None = None,
        holder: str | None = None,
        ttl: calls.Ttl = None,
        revalidate: bool = False,
        credential: str | None = None,
        progress: Callable[[Job], object] | None = None,
    ) -> Model:
        """Have a model here, from its origin on a miss; answers when it is.

        ``progress`` is called with the job as it goes.  ``wait`` is for how
        long, in seconds, to ask again for what passes by itself: no room, an
        origin that fails, a fetch of the key from elsewhere.  A download takes
        what it takes.  With ``holder`` it ends pinned, for ``ttl``.

        Raises TooLarge, Blocked, DiskFull, OriginFailed, DigestMismatch, …
        """
        from weightd.client.fetching import fetched

        wanted = calls.Wanted(str(key), source, digest, holder, ttl, revalidate, credential)
        return self.run(fetched(self.asking, self.mount, wanted, wait), progress)

    def verify(
        self, key: Key | str, *, progress: Callable[[Verification], object] | None = None
    ) -> Verification:
        """Have weightd read a model to the last byte; answers what is damaged of it.

        What is damaged is answered to nobody from then on.  ``progress`` is called as it
        goes, which takes minutes for a large model; leaving ends it.

        Raises NotResident, GenerationGone when it went meanwhile, TooMany, IoError, …
        """
        from weightd.client.verifying import verified

        return self.run(verified(self.asking, str(key)), progress)

    # -- Pins and holds ------------------------------------------------------------------

    def pin(
        self,
        holder: str,
        key: Key | str,
        *,
        ttl: calls.Ttl = None,
        generation: str | None = None,
    ) -> Pinned:
        """Pin a model, or renew the pin that ``holder`` has.  Raises NotResident, …"""
        flow = flows.pin(self.asking, self.mount, holder, str(key), ttl, generation)
        pinned: Pinned = self.run(flow)
        return pinned

    def unpin(self, holder: str, key: Key | str) -> None:
        """Let a pin go.  Raises NotPinned."""
        self.run(self.asking.nothing(calls.unpin(holder, str(key))))

    def pins(self) -> list[Pin]:
        """Every pin, hold and use that is seen."""
        from weightd.client.records import Pin

        return self.run(flows.listed(self.asking, Pin, calls.pins(), "pins"))

    def accept_loss(self) -> None:
        """After the record of pins was lost: have weightd evict again."""
        self.run(self.asking.nothing(calls.accept_loss()))

    @contextmanager
    def lease(
        self,
        key: Key | str,
        *,
        holder: str | None = None,
        ttl: float = LEASE_SECONDS,
        on_lost: Callable[[LeaseLost], object] | None = None,
    ) -> Iterator[Pinned]:
        """Pin a model for as long as the context lives, by a lease that is renewed.

        A renewal that fails for good is told to ``on_lost`` (in another thread)
        when it happens, and raised as `LeaseLost` when the context ends.
        """
        from weightd.client.holding import leased

        flow = leased(self.asking, self.mount, holder, str(key), ttl)
        pinned, lease = self.run(flow)
        with self._renewing(lease, on_lost):
            yield pinned

    def take_hold(
        self,
        key: Key | str,
        source: str | Sequence[str] | None = None,
        *,
        wait: float = 0.0,
        holder: str | None = None,
        digest: str | None = None,
        credential: str | None = None,
        progress: Callable[[Job], object] | None = None,
    ) -> Hold:
        """Keep a model for as long as the descriptor of the hold is open, here or in a child.

        As `hold`, and the lease that covered the start is gone when it answers:
        what stands is the kernel's.  Whoever asks closes the descriptor.
        """
        from weightd.client.holding import Wish, taken

        wish = Wish(str(key), source, holder, LEASE_SECONDS, wait, digest, credential)
        return self.run(taken(self.asking, self.mount, wish), progress)

    @contextmanager
    def hold(
        self,
        key: Key | str,
        source: str | Sequence[str] | None = None,
        *,
        wait: float = 0.0,
        holder: str | None = None,
        ttl: float = LEASE_SECONDS,
        digest: str | None = None,
        credential: str | None = None,
        progress: Callable[[Job], object] | None = None,
        on_lost: Callable[[LeaseLost], object] | None = None,
    ) -> Iterator[Hold]:
        """Keep a model where it is for as long as the context lives, whatever becomes of weightd.

        Fetches it from ``source`` on a miss, pins it by a lease as `lease` does,
        and takes a shared lock on its directory, which the kernel keeps until
        this process is gone too.  ``wait`` is as for `fetch`.

        Raises NotResident without a source, NotTheSameDirectory, HoldUnseen, …
        """
        from weightd.client.holding import Wish, held

        wish = Wish(str(key), source, holder, ttl, wait, digest, credential)
        hold = self.run(held(self.asking, self.mount, wish), progress)
        try:
            with self._renewing(hold.lease, on_lost):
                yield hold
        finally:
            os.close(hold.descriptor)

    @contextmanager
    def _renewing(
        self, lease: Lease, on_lost: Callable[[LeaseLost], object] | None
    ) -> Iterator[None]:
        """Renew a lease in a thread of its own, and end it with the context.

        A child that was forked within, and leaves it too, leaves the lease to whose it is.
        """
        from weightd.client.holding import let_go

        renewal, process = _Renewal(self._transport, self.asking, lease, on_lost), os.getpid()
        renewal.start()
        try:
            yield
        finally:
            if process == os.getpid():
                renewal.end()
                self.run(let_go(self.asking, lease.holder, lease.key))
        if renewal.lost is not None:
            raise renewal.lost

    # -- The node ------------------------------------------------------------------------

    def status(self) -> Status:
        """The budget and its parts, and everybody else's."""
        from weightd.client.records import Status

        return self.run(flows.one(self.asking, Status, calls.status()))

    def admission(self, bytes: int, key: Key | str | None = None) -> Verdict:
        """What would become of an arrival of so many bytes, without doing it."""
        from weightd.client.records import Verdict

        request = calls.admission(bytes, None if key is None else str(key))
        return self.run(flows.one(self.asking, Verdict, request))

    def evictions(self, after: int = 0) -> list[Eviction]:
        """The journal, from the line after number ``after`` on: what went, when, why, for whom."""
        return self.run(flows.evictions(self.asking, after))

    def events(self, after: int | None = None) -> Iterator[Happening]:
        """What happens from now on, or after the number of an event; across restarts."""
        yield from self._driver.steps(flows.happenings(self.asking, after))

    def jobs(self) -> list[Job]:
        """Every fetch under way or ended within the hour, the newest first."""
        from weightd.client.records import Job

        return self.run(flows.listed(self.asking, Job, calls.fetches(), "fetches"))

    def job(self, id: str) -> Job:
        """One fetch.  Raises UnknownFetch."""
        from weightd.client.records import Job

        return self.run(flows.one(self.asking, Job, calls.job(id)))

    def cancel(self, id: str) -> None:
        """End a fetch for everybody and give up what it brought.  Raises UnknownFetch."""
        self.run(self.asking.nothing(calls.cancel(id)))


class _Renewal(threading.Thread):
    """Renews a lease; ``lost`` is why it no longer does."""

    def __init__(
        self,
        transport: Transport,
        asking: Asking,
        lease: Lease,
        on_lost: Callable[[LeaseLost], object] | None,
    ) -> None:
        super().__init__(name=f"weightd lease on {lease.key}", daemon=True)
        self._stop_renewing = threading.Event()
        self._driver = Driver(transport, self._stop_renewing)
        self._asking = asking
        self._lease = lease
        self._on_lost = on_lost
        self.lost: LeaseLost | None = None

    def run(self) -> None:
        from weightd.client.faults import LeaseLost
        from weightd.client.holding import renewed

        try:
            self._driver.run(renewed(self._asking, self._lease))
        except LeaseLost as lost:
            self.lost = lost
            if self._on_lost is not None:
                self._on_lost(lost)

    def end(self) -> None:
        self._stop_renewing.set()
        self.join()
