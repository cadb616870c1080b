"""An adoption: the daemon makes a model of files where they are, and they are gone from there.

The daemon moves them, under a note of where each came from; whatever happens
to it or to this process, they are in the model or where they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from weightd import errors
from weightd.client import calls, flows
from weightd.client.asking import Asking, parsed
from weightd.client.effects import Answer, Do, Flow
from weightd.client.faults import LeftMidway, Unreachable, Unsendable
from weightd.client.mount import Mount
from weightd.client.offering import Offering
from weightd.client.records import Model

_ADOPTED: Final = 201
"""How an adoption is answered for which something was done."""


def adopt(
    asking: Asking, mount: Mount, key: str, offered: Callable[[], Offering], wait: float
) -> Flow[Model]:
    """The model as it is here now, of what ``offered`` finds when it is called."""
    told = yield from adopt_document(asking, key, offered, wait)
    model: Model = yield from flows.placed(mount, told)
    return model


def adopt_document(
    asking: Asking, key: str, offered: Callable[[], Offering], wait: float
) -> Flow[Any]:
    """The same as the daemon tells it."""
    offering: Offering = yield Do(offered)
    try:
        answer: Answer = yield from _asked(asking, key, offering, wait)
    except Unreachable as gone:
        if (yield Do(lambda: _moved(offering))):
            raise LeftMidway(gone.socket, gone.error, gone.looked) from gone
        raise
    except errors.InvalidRequest:
        # Asked again across a restart of the daemon, it may have been done before.
        told = yield from _done_before(asking, key, offering)
        if told is None:
            raise
    else:
        told = parsed(answer.body)
        if answer.status != _ADOPTED:
            # The same content was here: every file is where it was, and what leads to it stays.
            return told
    yield Do(lambda: _tidied(offering))
    return told


def _asked(asking: Asking, key: str, offering: Offering, wait: float) -> Flow[Answer]:
    request = calls.adopt(key, offering, wait)
    try:
        return (yield from asking.answer(request))
    except Unreachable:
        if asking.met or not (yield Do(lambda: _moved(offering))):
            raise
        # It was there, and went away over this: as for one that has answered, wait for it.
        asking.met = True
        return (yield from asking.answer(request))


def _moved(offering: Offering) -> bool:
    return any(not os.path.lexists(one.place) for one in offering.files)


def _done_before(asking: Asking, key: str, offering: Offering) -> Flow[Any]:
    """The model, if it has just these files and none that was to go is where it was."""
    moved = [one.place for one in offering.files if not one.keep]
    if not moved or (yield Do(lambda: any(os.path.lexists(place) for place in moved))):
        return None
    try:
        told = yield from asking.document(calls.get(key))
    except errors.NotResident:
        return None
    has = {(one["path"], one["bytes"]) for one in told["files"]}
    return told if has == {(one.name, one.size) for one in offering.files} else None


def _tidied(offering: Offering) -> None:
    """Raise Unsendable when what is left cannot be removed; the model is here all the same."""
    try:
        offering.tidy()
    except OSError as error:
        reason = f"the model is adopted, and what is left here cannot be removed ({error.strerror})"
        raise Unsendable(str(error.filename), reason) from error
