"""What a client does, call by call: requests and their answers with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from weightd.client import calls
from weightd.client.asking import Asking, parsed
from weightd.client.effects import Begin, Close, Flow, NextLine, Request, Tell
from weightd.client.mount import Mount

# Records, and the errors behind them, take as long to import as all else: a command that asks for
# one path does without them.

T = TypeVar("T")

LINE_SECONDS: Final = 60.0
"""How long a stream may be silent; the daemon's heartbeats come far more often."""

PAGE: Final = 200


def get(asking: Asking, mount: Mount, key: str) -> Flow[Any]:
    """The model, or None when it is not here."""
    try:
        told = yield from asking.document(calls.get(key))
    except KeyError:
        return None
    return (yield from placed(mount, told))


def peek(asking: Asking, key: str) -> Flow[bool]:
    """Whether the model is here; counts nothing."""
    answer = yield from asking.answer(calls.peek(key), allowed=404)
    return answer.status == 200


def placed(mount: Mount, told: Any) -> Flow[Any]:
    from weightd.client.records import Model, read

    return (yield from mount.placed(read(Model, told)))


def pin(
    asking: Asking, mount: Mount, holder: str, key: str, ttl: calls.Ttl, generation: str | None
) -> Flow[Any]:
    from weightd.client.faults import NotTheSameDirectory
    from weightd.client.records import read_pinned

    answer = yield from asking.answer(calls.pin(holder, key, ttl, generation))
    pinned = read_pinned(parsed(answer.body))
    try:
        model = yield from mount.placed(pinned.model)
    except NotTheSameDirectory:
        # Who is told that it failed does not think of a pin; one that was there before stays.
        if answer.status == 201:
            yield from asking.parting(calls.unpin(holder, key))
        raise
    return pinned._replace(model=model)


def one(asking: Asking, shape: Callable[..., T], request: Request) -> Flow[T]:
    """A call that answers one record."""
    from weightd.client.records import read

    told = yield from asking.document(request)
    return cast(T, read(cast(Any, shape), told))


def listed(asking: Asking, shape: Callable[..., T], request: Request, name: str) -> Flow[list[T]]:
    """A call that answers all there are under ``name``."""
    from weightd.client.records import read

    told = yield from asking.document(request)
    return [cast(T, read(cast(Any, shape), each)) for each in told[name]]


def pages(
    asking: Asking, request: Callable[[int, Any], Request], name: str, after: Any = None
) -> Flow[list[Any]]:
    """All pages of a list, from the one after ``after`` on, as documents."""
    found: list[Any] = []
    while True:
        told = yield from asking.document(request(PAGE, after))
        found += told[name]
        after = told["next"]
        if after is None:
            return found


def models(asking: Asking, mount: Mount) -> Flow[list[Any]]:
    """All models, without their files."""
    from weightd.client.records import Model, read

    told = yield from pages(asking, calls.models, "models")
    return [mount.relocated(read(Model, one)) for one in told]


def evictions(asking: Asking, after: int) -> Flow[list[Any]]:
    """The journal after a line, the oldest first."""
    from weightd.client.records import Eviction, read

    told = yield from pages(asking, calls.evictions, "evictions", after)
    return [read(Eviction, one) for one in told]


def happenings(asking: Asking, after: int | None) -> Flow[None]:
    """Tell what happens, across restarts of the daemon; it ends when the daemon stays away."""
    from weightd.client.records import Happening, read_happening

    reached = after

    def shown(line: Any) -> Happening:
        nonlocal reached
        reached = line["seq"]
        return read_happening(line)

    while True:
        try:
            yield from lines(asking, calls.events(reached), shown)
        except ConnectionError:
            if not asking.met:
                raise
        # Waits as long as for any other call, and raises when it was too long.
        yield from asking.nothing(calls.status())


def lines(asking: Asking, request: Request, shown: Callable[[Any], object]) -> Flow[Any]:
    """Tell what is ``shown`` of every line of a stream but heartbeats, and answer the last.

    None when the stream ended without saying so.
    """
    pending = yield Begin(request)
    try:
        while True:
            line = yield NextLine(pending, LINE_SECONDS)
            if line is None:
                return None
            if not isinstance(line, bytes):
                from weightd.client.problems import error_of

                raise error_of(line)
            asking.met = True
            told = parsed(line)
            if told.get("type") == "heartbeat":
                continue
            yield Tell(shown(told))
            if told.get("type") == "end":
                return told
    finally:
        yield Close(pending)
