"""The client that awaits: what `Client` does, in an asyncio loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from weightd.client import calls, flows, lookup
from weightd.client.asking import LEASE_SECONDS, PATIENCE, Asking
from weightd.client.awaiting import Driver, Transport
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


class AsyncClient:
    """`Client` for one asyncio loop: the same calls, with the same meaning and errors."""

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

    async def close(self) -> None:
        """As `Client.close`."""
        self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, flow: Flow[T], tell: Callable[[Any], object] | None = None) -> T:
        """As `Client.run`."""
        return await self._driver.run(flow, tell)

    # -- Models ------------------------------------------------------------------------

    async def get(self, key: Key | str) -> Model | None:
        """As `Client.get`."""
        model: Model | None = await self.run(flows.get(self.asking, self.mount, str(key)))
        return model

    async def path(self, key: Key | str) -> str:
        """As `Client.path`."""
        return await self.run(lookup.path(self.asking, self.mount, str(key)))

    async def peek(self, key: Key | str) -> bool:
        """As `Client.peek`."""
        return await self.run(flows.peek(self.asking, str(key)))

    async def models(self) -> list[Model]:
        """As `Client.models`."""
        return await self.run(flows.models(self.asking, self.mount))

    async def put(
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
        """As `Client.put`."""
        from weightd.client.putting import put

        terms = calls.PutTerms(False, file, sha256, create_only, unless, wait)
        flow = put(self.asking, self.mount, str(key), source, terms)
        return await self.run(flow, progress)

    async def adopt(
        self,
        key: Key | str,
        source: str | os.PathLike[str],
        *,
        sha256sums: str | os.PathLike[str] | None = None,
        keep: bool = False,
        check: bool = False,
        wait: float = 0.0,
    ) -> Model:
        """As `Client.adopt`."""
        from weightd.client.offering import offered

        return await self.adopt_offering(key, offered(source, sha256sums, keep, check), wait=wait)

    async def adopt_offering(
        self, key: Key | str, offering: Callable[[], Offering], *, wait: float = 0.0
    ) -> Model:
        """As `Client.adopt_offering`."""
        from weightd.client.adopting import adopt

        return await self.run(adopt(self.asking, self.mount, str(key), offering, wait))

    async def warm(
        self, key: Key | str, *, progress: Callable[[Warming], object] | None = None
    ) -> Warmed:
        """As `Client.warm`."""
        from weightd.client.warming import warmed

        return await self.run(warmed(self.asking, str(key)), progress)

    async def delete(self, key: Key | str) -> None:
        """As `Client.delete`."""
        await self.run(self.asking.nothing(calls.delete(str(key))))

    async def fetch(
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
        """As `Client.fetch`."""
        from weightd.client.fetching import fetched

        wanted = calls.Wanted(str(key), source, digest, holder, ttl, revalidate, credential)
        return await self.run(fetched(self.asking, self.mount, wanted, wait), progress)

    async def verify(
        self, key: Key | str, *, progress: Callable[[Verification], object] | None = None
    ) -> Verification:
        """As `Client.verify`."""
        from weightd.client.verifying import verified

        return await self.run(verified(self.asking, str(key)), progress)

    # -- Pins and holds ------------------------------------------------------------------

    async def pin(
        self,
        holder: str,
        key: Key | str,
        *,
        ttl: calls.Ttl = None,
        generation: str | None = None,
    ) -> Pinned:
        """As `Client.pin`."""
        flow = flows.pin(self.asking, self.mount, holder, str(key), ttl, generation)
        pinned: Pinned = await self.run(flow)
        return pinned

    async def unpin(self, holder: str, key: Key | str) -> None:
        """As `Client.unpin`."""
        await self.run(self.asking.nothing(calls.unpin(holder, str(key))))

    async def pins(self) -> list[Pin]:
        """As `Client.pins`."""
        from weightd.client.records import Pin

        return await self.run(flows.listed(self.asking, Pin, calls.pins(), "pins"))

    async def accept_loss(self) -> None:
        """As `Client.accept_loss`."""
        await self.run(self.asking.nothing(calls.accept_loss()))

    @asynccontextmanager
    async def lease(
        self,
        key: Key | str,
        *,
        holder: str | None = None,
        ttl: float = LEASE_SECONDS,
        on_lost: Callable[[LeaseLost], object] | None = None,
    ) -> AsyncIterator[Pinned]:
        """As `Client.lease`."""
        from weightd.client.holding import leased

        flow = leased(self.asking, self.mount, holder, str(key), ttl)
        pinned, lease = await self.run(flow)
        async with self._renewing(lease, on_lost):
            yield pinned

    async def take_hold(
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
        """As `Client.take_hold`."""
        from weightd.client.holding import Wish, taken

        wish = Wish(str(key), source, holder, LEASE_SECONDS, wait, digest, credential)
        return await self.run(taken(self.asking, self.mount, wish), progress)

    @asynccontextmanager
    async def hold(
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
    ) -> AsyncIterator[Hold]:
        """As `Client.hold`."""
        from weightd.client.holding import Wish, held

        wish = Wish(str(key), source, holder, ttl, wait, digest, credential)
        hold = await self.run(held(self.asking, self.mount, wish), progress)
        try:
            async with self._renewing(hold.lease, on_lost):
                yield hold
        finally:
            os.close(hold.descriptor)

    @asynccontextmanager
    async def _renewing(
        self, lease: Lease, on_lost: Callable[[LeaseLost], object] | None
    ) -> AsyncIterator[None]:
        """Renew a lease in a task of its own, and end it with the context."""
        from weightd.client.faults import LeaseLost
        from weightd.client.holding import let_go, renewed

        async def renew() -> None:
            try:
                await Driver(self._transport, stop).run(renewed(self.asking, lease))
            except LeaseLost as lost:
                if on_lost is not None:
                    on_lost(lost)
                raise

        stop = asyncio.Event()
        renewal = asyncio.create_task(renew(), name=f"weightd lease on {lease.key}")
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait([renewal])
            await self.run(let_go(self.asking, lease.holder, lease.key))
            failure = renewal.exception()
        if failure is not None:
            raise failure

    # -- The node ------------------------------------------------------------------------

    async def status(self) -> Status:
        """As `Client.status`."""
        from weightd.client.records import Status

        return await self.run(flows.one(self.asking, Status, calls.status()))

    async def admission(self, bytes: int, key: Key | str | None = None) -> Verdict:
        """As `Client.admission`."""
        from weightd.client.records import Verdict

        request = calls.admission(bytes, None if key is None else str(key))
        return await self.run(flows.one(self.asking, Verdict, request))

    async def evictions(self, after: int = 0) -> list[Eviction]:
        """As `Client.evictions`."""
        return await self.run(flows.evictions(self.asking, after))

    async def events(self, after: int | None = None) -> AsyncIterator[Happening]:
        """As `Client.events`."""
        async with aclosing(self._driver.steps(flows.happenings(self.asking, after))) as steps:
            async for happening in steps:
                yield happening

    async def jobs(self) -> list[Job]:
        """As `Client.jobs`."""
        from weightd.client.records import Job

        return await self.run(flows.listed(self.asking, Job, calls.fetches(), "fetches"))

    async def job(self, id: str) -> Job:
        """As `Client.job`."""
        from weightd.client.records import Job

        return await self.run(flows.one(self.asking, Job, calls.job(id)))

    async def cancel(self, id: str) -> None:
        """As `Client.cancel`."""
        await self.run(self.asking.nothing(calls.cancel(id)))
