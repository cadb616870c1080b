"""A put: by an upload where this process can write what the daemon hands out, else over the socket.

An upload's bytes are written once, by the caller, at the disk's speed.  What
has to be decided by the daemon at the moment of the put (create only, unless it
is there) goes over the socket, and so does a put from a container in which the
daemon's directory is not to be seen.
"""

from __future__ import annotations

import errno
import os
import time
from functools import partial
from typing import Any, Final, NamedTuple

from weightd import errors
from weightd.client import calls, flows
from weightd.client.asking import Asking
from weightd.client.effects import Body, Do, Flow, Tell
from weightd.client.faults import Refused, Unsendable
from weightd.client.mount import Mount
from weightd.client.packing import File, Listing, listed, packed
from weightd.client.records import Model

STEP_BYTES: Final = 16 << 20
"""So much is copied before it is told how far it is, and before the disk begins with it."""

ATTEMPTS: Final = 3
"""How often a put is begun again whose upload ended with the daemon."""

_NOT_HERE: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class _NotTaken(Exception):
    """The daemon's directory does not take what is written; ``ended`` says that it is gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.ended = error.errno in (errno.ENOENT, errno.ESTALE)


class Sent(NamedTuple):
    """How far a put is, in bytes; ``since`` is when its first byte was written (monotonic)."""

    bytes: int
    whole: int
    since: float


def put(
    asking: Asking,
    mount: Mount,
    key: str,
    source: str | os.PathLike[str] | bytes,
    terms: calls.PutTerms,
) -> Flow[Model]:
    """The model as it is here now; tells how much was `Sent`."""
    told = yield from put_document(asking, mount, key, source, terms)
    model: Model = yield from flows.placed(mount, told)
    return model


def put_document(
    asking: Asking,
    mount: Mount,
    key: str,
    source: str | os.PathLike[str] | bytes,
    terms: calls.PutTerms,
) -> Flow[Any]:
    """The same as the daemon tells it."""
    if isinstance(source, bytes):
        body = Body(lambda: iter([source] if source else []), len(source))
        return (yield from asking.document(calls.put(key, body, terms)))
    listing: Listing = yield Do(lambda: listed(source, terms))
    if not terms.create_only and terms.unless is None:
        for _ in range(ATTEMPTS):
            try:
                told = yield from _uploaded(asking, mount, key, listing, terms)
            except errors.UnknownUpload:
                continue
            except _NotTaken as refused:
                if refused.ended:
                    continue
                # Full, or failing: the daemon knows the figures, and tells them of a put.
                break
            if told is not None:
                return told
            break
    agreed = terms._replace(archive=listing.directory)
    if not listing.directory:
        agreed = agreed._replace(file=listing.files[0].name)
    body = yield Do(lambda: packed(listing))
    return (yield from asking.document(calls.put(key, body, agreed)))


def _uploaded(
    asking: Asking, mount: Mount, key: str, listing: Listing, terms: calls.PutTerms
) -> Flow[Any]:
    """The record, or None where the daemon takes no upload from here."""
    request = calls.begin_upload(key, listing.files, terms)
    try:
        upload = yield from asking.document(request)
    except errors.Forbidden:
        # It cannot let this user write there; what it may refuse of a put as well, that one tells.
        return None
    except Refused as refused:
        # One that has none yet.
        if refused.kind != "not-found":
            raise
        return None
    path = upload["path"]
    if mount.root is not None:
        path = os.path.join(mount.root, upload["relative_path"])
    whole = False
    try:
        if not (yield Do(lambda: os.access(path, os.W_OK | os.X_OK))):
            return None
        yield from _filled(path, listing)
        told = yield from asking.document(calls.commit_upload(upload["id"]))
        whole = True
        return told
    finally:
        if not whole:
            yield from _given_up(asking, upload["id"])


def _given_up(asking: Asking, id: str) -> Flow[None]:
    try:
        yield from asking.parting(calls.end_upload(id))
    except errors.WeightdError as error:
        # It ended with the daemon, or expires by itself.
        if not (error.retryable or isinstance(error, errors.UnknownUpload)):
            raise


def _filled(path: str, listing: Listing) -> Flow[None]:
    """Copy every file, and tell how far it is."""
    sent, since = 0, time.monotonic()
    for file in listing.files:
        opened: list[int] = []
        try:
            # Not by its answer: whoever is interrupted meanwhile does not get that.
            yield Do(partial(_open, path, file, opened))
            source, target = opened
            left = file.size
            while left:
                copied: int = yield Do(partial(_copied, source, target, left))
                if not copied:
                    raise Unsendable(str(file.place), f"it is {left} bytes shorter than before")
                yield Do(partial(_write_back, target, file.size - left, copied))
                left, sent = left - copied, sent + copied
                yield Tell(Sent(sent, listing.size, since))
            yield Do(partial(_must_end, source, file))
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _open(path: str, file: File, opened: list[int]) -> None:
    """Open what is read and what is written, in this order.  Raises Unsendable and _NotTaken.

    A daemon that is not root has made the latter ahead: what is written into it is the daemon's
    at once, where a new one would have to be copied.
    """
    try:
        opened.append(os.open(file.place, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise Unsendable(str(file.place), error.strerror or str(error)) from error
    name = os.path.join(path, file.name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened.append(os.open(name, flags, 0o644))
    except OSError as error:
        raise _NotTaken(error) from error


def _write_back(target: int, at: int, size: int) -> None:
    """Have the disk begin with a stretch, and wait for nothing.

    The commit is to find most of it done, and the kernel would begin seconds later. To say
    that dirty pages are not needed begins their write-back; only clean ones are let go of.
    """
    os.posix_fadvise(target, at, size, os.POSIX_FADV_DONTNEED)


def _must_end(source: int, file: File) -> None:
    """Raise Unsendable when a file has become longer: what was copied is no whole one."""
    if os.fstat(source).st_size > file.size:
        reason = f"it is longer than the {file.size} bytes of a moment ago"
        raise Unsendable(str(file.place), reason)


def _copied(source: int, target: int, left: int) -> int:
    """Copy some of what is left, in the kernel; how much it was.  Raises _NotTaken."""
    most = min(left, STEP_BYTES)
    try:
        try:
            return os.copy_file_range(source, target, most)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
        return os.sendfile(target, source, None, most)
    except OSError as error:
        # Or the source does not give it, which a put tells of by its name.
        raise _NotTaken(error) from error
