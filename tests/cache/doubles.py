"""Stand-ins for what surrounds a cache: a clock, bodies, and calls that can be held."""

from __future__ import annotations

import asyncio
import io
import queue
import random
import sys
import tarfile
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import TracebackType, coroutine
from typing import Any

from weightd.cache import Source
from weightd.cache.workers import Workers
from weightd.errors import IncompleteBody
from weightd.store import NoSpace

PATIENCE = 30.0
"""Seconds after which a wait that should end at once is a failure."""


@coroutine
def suspended(work: Coroutine[Any, Any, Any], each: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run ``work``, calling ``each`` whenever it is about to be suspended."""
    error: BaseException | None = None
    while True:
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        error = None
        each()
        try:
            yield awaited
        except BaseException as thrown:  # noqa: BLE001 - it is the work's to handle
            error = thrown


class FakeClock:
    """Stands still until it is told to go on."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time

    def not_before(self, instant: float) -> None:
        self.time = max(self.time, instant)

    def advance(self, seconds: float) -> None:
        self.time += seconds


def bytes_of(seed: object, size: int) -> bytes:
    """``size`` bytes that are the same for the same seed and no other."""
    return random.Random(str(seed)).randbytes(size)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Whole:
    """A body that is all there."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)
        self.entered = False

    async def __aenter__(self) -> Source:
        self.entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def readinto(self, buffer: memoryview) -> int:
        return self._stream.readinto(buffer)


class Paused(Whole):
    """A body that brings ``first`` bytes, says so, and brings the rest when told to `go_on`."""

    def __init__(self, data: bytes, first: int = 0) -> None:
        super().__init__(data)
        self._first = first
        self._brought = 0
        self._go = threading.Event()
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self.paused = asyncio.Event()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended = True
        self._go.set()

    def go_on(self) -> None:
        self._go.set()

    def readinto(self, buffer: memoryview) -> int:
        left = self._first - self._brought
        if left <= 0 and not self._go.is_set():
            self._loop.call_soon_threadsafe(self.paused.set)
            assert self._go.wait(PATIENCE), "nobody let the body go on"
            if self._ended:
                raise IncompleteBody(received=self._brought, declared=None)
        size = super().readinto(buffer[:left] if left > 0 else buffer)
        self._brought += size
        return size


class Stepwise(Whole):
    """A body that brings so many bytes at each `bring`."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = 0
        self._more: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._dry = threading.Event()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    def bring(self, size: int) -> None:
        """Bring ``size`` bytes, and wait until they are written.  Not for the loop's thread."""
        assert self._dry.wait(PATIENCE), "the body was not read to where it stands"
        self._dry.clear()
        self._more.put(size)
        assert self._dry.wait(PATIENCE), "nobody took what the body brought"

    def finish(self) -> None:
        """Bring all the rest."""
        self._more.put(sys.maxsize)

    def readinto(self, buffer: memoryview) -> int:
        if not self._left:
            self._dry.set()
            self._left = self._more.get(timeout=PATIENCE)
        size = super().readinto(buffer[: min(len(buffer), self._left)])
        self._left -= size
        return size


class Hold:
    """Stops whatever thread meets it, until it is let go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._go = threading.Event()
        self.met = asyncio.Event()

    def meet(self) -> None:
        self._loop.call_soon_threadsafe(self.met.set)
        assert self._go.wait(PATIENCE), "nobody let this call go on"

    def let_go(self) -> None:
        self._go.set()


class Gate:
    """Holds whoever comes first, or as the n-th, to one failpoint."""

    def __init__(self) -> None:
        self._step: str | None = None
        self._left = 0
        self._hold: Hold | None = None
        self._passing = threading.Lock()

    def hold_at(self, step: str, nth: int = 1) -> Hold:
        self._step, self._left, self._hold = step, nth, Hold()
        return self._hold

    def pass_by(self, reached: str) -> None:
        with self._passing:
            if reached != self._step:
                return
            self._left -= 1
            meets = self._left == 0
        if meets and self._hold is not None:
            self._hold.meet()


class HeldWorkers:
    """A cache's workers, of whose calls one can be held before or after it is carried out."""

    def __init__(self, inner: Workers) -> None:
        self._inner = inner
        self._left = 0
        self._name: str | None = None
        self._after = False
        self._error: Exception | None = None
        self.failed = False
        self.hold: Hold | None = None

    def arm(self, which: int | str, *, after: bool) -> Hold:
        """Hold the call ``which`` from now on: the next is 1; or the next of that name."""
        self._left = which if isinstance(which, int) else 0
        self._name = which if isinstance(which, str) else None
        self._after = after
        self.hold = Hold()
        return self.hold

    def fail(self, nth: int, error: Exception) -> None:
        """Let the ``nth`` call from now on raise instead of being carried out."""
        self._left, self._name, self._error, self.failed = nth, None, error, False

    def fail_call(self, name: str, error: Exception) -> None:
        """Let the next call of that name raise."""
        self._left, self._name, self._error, self.failed = 0, name, error, False

    def disk(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.disk(self._held(call, fills=False), *args, **kwargs)

    def seize(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.seize(self._held(call), *args, **kwargs)

    def commit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.commit(self._held(call), *args, **kwargs)

    def pins(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        # What the disk does there is told as what became of the pins.
        return self._inner.pins(self._held(call, fails=False), *args, **kwargs)

    def housekeep(
        self, call: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        return self._inner.housekeep(self._held(call, fills=False), *args, **kwargs)

    def settle(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.settle(self._held(call), *args, **kwargs)

    def transfer(
        self, call: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        return self._inner.transfer(self._held(call), *args, **kwargs)

    def fetch(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        # It asks the origin: what the disk does there fails inside of it.
        return self._inner.fetch(self._held(call, fails=False), *args, **kwargs)

    def warm(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.warm(self._held(call, fills=False), *args, **kwargs)

    def verify(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.verify(self._held(call, fills=False), *args, **kwargs)

    def unlink(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._inner.unlink(call, *args, **kwargs)

    def close(self) -> None:
        self._inner.close()

    def _held(
        self, call: Callable[..., Any], *, fails: bool = True, fills: bool = True
    ) -> Callable[..., Any]:
        """``fails`` says that the disk may fail it, ``fills`` that a full one may."""
        name = getattr(call, "__name__", str(call))
        may = fails and (fills or not isinstance(self._error, NoSpace))
        if self._error is not None and not may and name != self._name:
            return call
        if name in ("abort", "_receive") and name != self._name:
            # Held only by name: the first never fails, the second fails as its body does.
            return call
        self._left -= 1
        if name == self._name:
            self._left, self._name = 0, None
        hold, after = self.hold, self._after
        if self._left == 0 and self._error is not None:
            return self._fail
        if self._left != 0 or hold is None:
            return call

        def held(*args: Any, **kwargs: Any) -> Any:
            if not after:
                hold.meet()
            try:
                return call(*args, **kwargs)
            finally:
                if after:
                    hold.meet()

        return held

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        error, self._error, self.failed = self._error, None, True
        assert error is not None
        raise error
