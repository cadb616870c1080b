"""From a wish to a model that stays: the lease that covers the start, then the kernel's hold.

The order is what makes it safe.  The pin comes first, so that nothing moves the
directory while it is opened and locked.  Then it is asked whether the path still
names what was locked, and whether the daemon sees the lock; only then may the
pin go, and the hold alone keeps the model for as long as a descriptor to the
directory is open, whatever becomes of the daemon.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from weightd import errors
from weightd.client import calls, flows
from weightd.client.asking import LEASE_SECONDS, Asking
from weightd.client.effects import Do, Flow, Pause, Rest
from weightd.client.fetching import fetched_document
from weightd.client.holders import own_holder
from weightd.client.mount import Mount, mismatch
from weightd.client.records import Model, Pinned

LOCK_SECONDS: Final = 10.0
"""The daemon tries a directory's lock for an instant now and then; nobody keeps it."""

SEEN_SECONDS: Final = 60.0
"""The daemon looks at every model within seconds, or, on a busy disk, within some more."""

_LOOK_AGAIN: Final = 0.05
_LOOK_AGAIN_MAX: Final = 0.5


class Lease(NamedTuple):
    """A pin to renew; ``held`` says that a hold keeps the model besides."""

    holder: str
    key: str
    generation: str
    ttl: float
    held: bool = False


class Hold(NamedTuple):
    """A model that stays for as long as ``descriptor`` is open; ``lease`` is beside it."""

    model: Model
    holder: str
    descriptor: int
    lease: Lease

    @property
    def path(self) -> str:
        return self.model.path


class Wish(NamedTuple):
    """What is to be held: see `Client.hold`.

    ``source`` None takes what is here, ``holder`` None the name of this process.
    """

    key: str
    source: str | Sequence[str] | None = None
    holder: str | None = None
    ttl: float = LEASE_SECONDS
    wait: float = 0.0
    digest: str | None = None
    credential: str | None = None


def held(asking: Asking, mount: Mount, wish: Wish) -> Flow[Hold]:
    """Pin, lock, and see that both are true; tells each `Job` of a fetch.

    The lease stands when it answers; what fails later leaves neither lock nor lease.
    """
    holder = wish.holder or (yield Do(own_holder))
    try:
        told = yield from _pinned(asking, wish, holder)
    except errors.WeightdError:
        raise
    except BaseException:
        # Interrupted before the answer came: the pin may stand.
        yield from let_go(asking, holder, wish.key)
        raise
    descriptor: int | None = None
    try:
        model: Model = yield from flows.placed(mount, told)
        lease = Lease(holder, wish.key, model.generation, wish.ttl, held=True)
        descriptor = yield from _locked(model)
        yield Do(partial(_must_still_be, model, descriptor))
        yield from _must_be_seen(asking, lease, model)
    except BaseException:
        if descriptor is not None:
            os.close(descriptor)
        yield from let_go(asking, holder, wish.key)
        raise
    return Hold(model, holder, descriptor, lease)


def taken(asking: Asking, mount: Mount, wish: Wish) -> Flow[Hold]:
    """The same without the lease: what stands is the kernel's."""
    hold = yield from held(asking, mount, wish)
    try:
        yield from let_go(asking, hold.holder, wish.key)
    except BaseException:
        os.close(hold.descriptor)
        raise
    return hold


def leased(
    asking: Asking, mount: Mount, holder: str | None, key: str, ttl: float
) -> Flow[tuple[Pinned, Lease]]:
    """A pin that is to be renewed."""
    name = holder or (yield Do(own_holder))
    try:
        pinned: Pinned = yield from flows.pin(asking, mount, name, key, ttl, None)
    except errors.WeightdError as error:
        from weightd.client.faults import NotTheSameDirectory

        if isinstance(error, NotTheSameDirectory):
            yield from let_go(asking, name, key)
        raise
    except BaseException:
        # As in `held`.
        yield from let_go(asking, name, key)
        raise
    return pinned, Lease(name, key, pinned.model.generation, ttl)


def let_go(asking: Asking, holder: str, key: str) -> Flow[None]:
    """End a lease.  One that has lapsed is as good, and so is one that lapses by itself."""
    try:
        yield from asking.parting(calls.unpin(holder, key))
    except errors.WeightdError as error:
        if not (error.retryable or isinstance(error, errors.NotPinned)):
            raise


def renewed(asking: Asking, lease: Lease) -> Flow[None]:
    """Renew a lease until it is to end.

    Where a hold stands beside it a daemon may be away for any time; otherwise
    only for as long as the lease lasts.  Raises LeaseLost.
    """
    lapses, pause = time.monotonic() + lease.ttl, lease.ttl / 3
    renewal = calls.pin(lease.holder, lease.key, lease.ttl, lease.generation)
    while not (yield Rest(pause)):
        try:
            yield from asking.nothing(renewal)
        except errors.WeightdError as error:
            from weightd.client.faults import LeaseLost

            left = lapses - time.monotonic()
            if not error.retryable or (left <= 0 and not lease.held):
                raise LeaseLost(lease.holder, lease.key, error) from error
            pause = lease.ttl / 10
        else:
            lapses, pause = time.monotonic() + lease.ttl, lease.ttl / 3


# -- The steps ----------------------------------------------------------------------


def _pinned(asking: Asking, wish: Wish, holder: str) -> Flow[Any]:
    """The record of the model, pinned by a lease: fetched on a miss if a source is known."""
    if wish.source is None:
        return (yield from asking.document(calls.pin(holder, wish.key, wish.ttl)))
    wanted = calls.Wanted(
        wish.key,
        wish.source,
        digest=wish.digest,
        holder=holder,
        ttl=wish.ttl,
        credential=wish.credential,
    )
    return (yield from fetched_document(asking, wanted, wish.wait))


def _locked(model: Model) -> Flow[int]:
    """A descriptor to the directory, with a shared lock on it."""
    opened: list[int] = []
    try:
        # Not by its answer: whoever is interrupted meanwhile does not get that.
        yield Do(lambda: opened.append(_opened(model)))
        until = time.monotonic() + LOCK_SECONDS
        while not (yield Do(lambda: _lock(opened[0]))):
            if time.monotonic() > until:
                from weightd.client.faults import HoldRefused

                raise HoldRefused(model.path, LOCK_SECONDS)
            yield Pause(_LOOK_AGAIN)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened[0]


def _opened(model: Model) -> int:
    try:
        return os.open(model.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise mismatch(model, model.path, f"cannot be opened ({error.strerror})") from error


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _must_still_be(model: Model, descriptor: int) -> None:
    """Raise NotTheSameDirectory unless the path still names what was locked."""
    locked = os.fstat(descriptor)
    try:
        named = os.stat(model.path)
    except OSError as error:
        reason = f"cannot be looked at any more ({error.strerror})"
        raise mismatch(model, model.path, reason) from error
    if (locked.st_dev, locked.st_ino) != (named.st_dev, named.st_ino):
        raise mismatch(model, model.path, "is another directory than a moment ago")


def _must_be_seen(asking: Asking, lease: Lease, model: Model) -> Flow[None]:
    """Wait until the daemon says that the model is held.

    That another process holds it too says as much: its lock and ours are on one
    inode, in tables that this daemon can read.  Raises HoldUnseen.
    """
    until, pause = time.monotonic() + SEEN_SECONDS, _LOOK_AGAIN
    while not (yield from _is_seen(asking, lease, model)):
        if time.monotonic() > until:
            from weightd.client.faults import HoldUnseen

            raise HoldUnseen(model.path, SEEN_SECONDS)
        yield Pause(pause)
        pause = min(2 * pause, _LOOK_AGAIN_MAX)


def _is_seen(asking: Asking, lease: Lease, model: Model) -> Flow[bool]:
    """Whether the daemon sees it now: a renewal has it look."""
    answer = yield from asking.document(
        calls.pin(lease.holder, lease.key, lease.ttl, model.generation)
    )
    return bool(answer["held"])
