"""``s3://``, ``gs://`` and ``az://``: the objects below a prefix, by obstore.

The client lists, knows every way to a credential, and signs.  Where keys are
all that an address takes (S3), bytes are then read from it as from any web
server, which is faster, can be cut, and tells what the store says of a retry.
Elsewhere the client reads.  It is written in Rust and has threads of its own;
an event loop waits for it here, since what a loop waits for can be cancelled.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weightd.errors import OriginChanged, OriginFailed, OriginTimeout, WeightdError
from weightd.origins.answers import is_length
from weightd.origins.client import HttpClient
from weightd.origins.contract import Listing, OriginKind, Patience, RemoteFile, Stream, Trust
from weightd.origins.loopthread import LoopThread
from weightd.origins.objectstores import Stores, open_stores
from weightd.origins.query import matches
from weightd.origins.ranged import FirstTold, Nothing, open_ranged
from weightd.origins.reference import Reference, invalid
from weightd.origins.revisions import revision_of
from weightd.origins.speaking import hushed, printable, refused, words_of_xml

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta
    from obstore.store import ObjectStore

_VALID: Final = timedelta(hours=1)
CHUNK_BYTES: Final = 1 << 20
_OBJECTS_MAX: Final = 100_000
_TIMED_OUT: Final = re.compile(r"timed ?out", re.IGNORECASE)
_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_SLACK_SECONDS: Final = 5.0
"""The client's own bounds come first; this is for where it has none, as in looking up a name."""

_LISTING_SECONDS: Final = 600.0

Told = TypeVar("Told")


class ObjectsOrigin:
    """See `weightd.origins.contract.Origin`."""

    def __init__(
        self, reference: Reference, trust: Trust, patience: Patience, credential: str | None
    ) -> None:
        self.kind: OriginKind = reference.kind
        self._reference = reference
        self.source = reference.text
        self._patience = patience
        self._stores: Stores | None = open_stores(reference, trust, patience, credential)
        self._http = HttpClient(reference.text, patience, ca_file=trust.ca_file)
        self._told = FirstTold()
        self._thread = LoopThread(f"{reference.kind} client")

    def list(self) -> Listing:
        """See `Origin.list`."""
        self._told.forget()
        found = self.wait(self._objects(), "its listing", _LISTING_SECONDS)
        prefix = self._reference.path + "/"
        allow, ignore = self._reference.option("allow"), self._reference.option("ignore")
        if not found:
            return self._one()
        for meta in found:
            self._must_be_sound(meta)
        chosen = [
            _file(meta, path)
            for meta in _without_markers(found, prefix)
            if matches(path := meta["path"].removeprefix(prefix), allow, ignore)
        ]
        if not chosen:
            if allow or ignore:
                raise invalid(f"the patterns of {self._reference} leave none of its objects")
            raise self.refused("there is no object below it")
        files = tuple(sorted(chosen, key=lambda file: file.path))
        return Listing(files, revision_of(files))

    def open(self, file: RemoteFile, start: int = 0, stop: int | None = None) -> Stream:
        """See `Origin.open`."""
        end = file.bytes or 0 if stop is None else stop
        if end <= start:
            return Nothing()
        address = self.wait(self._address(file), "an address")
        if address is not None:
            return open_ranged(self._http, address, file, start, end, told=self._told)
        return self._open(file, start, end)

    def _open(self, file: RemoteFile, start: int, end: int) -> Stream:
        """Read by the client."""
        size = file.bytes
        result = self.wait(self._get(file, start, end), file.path)
        meta = result.meta
        if meta["size"] != size or file.validator not in (None, _quoted(meta["e_tag"])):
            raise OriginChanged(self._reference.text, f"{file.path} is another one")
        if tuple(result.range) != (start, end):
            words = f"{file.path}: asked for bytes {start}-{end}, it gives {result.range}"
            raise self.refused(words)
        body = aiter(result.stream(min_chunk_size=CHUNK_BYTES))
        return ObjectStream(self, file, body, end - start)

    def close(self) -> None:
        """See `Origin.close`."""
        self._http.close()
        self._thread.close()
        # The client keeps connections as long as anybody keeps the client.
        self._stores = None

    @property
    def _open_stores(self) -> Stores:
        if self._stores is None:
            raise OriginFailed(self.source, "the origin was closed")
        return self._stores

    @property
    def _client(self) -> ObjectStore:
        return self._open_stores.client

    async def _address(self, file: RemoteFile) -> str | None:
        """Where the bytes of a file are for whoever knows the address; None where nowhere.

        No question to the store: keys are all it takes.
        """
        import obstore

        stores = self._open_stores
        if stores.addresses is None:
            return None
        address = await obstore.sign_async(stores.addresses, "GET", file.location, _VALID)
        return address.partition("?")[0] if stores.unsigned else address

    async def _objects(self) -> Sequence[ObjectMeta]:
        import obstore

        found: list[ObjectMeta] = []
        async for page in obstore.list(self._client, self._reference.path):
            found += page
            if len(found) > _OBJECTS_MAX:
                raise ValueError(f"there are more than {_OBJECTS_MAX} objects below it")
        return found

    async def _head(self) -> ObjectMeta | None:
        import obstore

        try:
            return await obstore.head_async(self._client, self._reference.path)
        except FileNotFoundError:
            return None

    async def _get(self, file: RemoteFile, start: int, end: int) -> GetResult:
        import obstore

        options: GetOptions = {"range": (start, end)}
        if file.validator is not None:
            options["if_match"] = file.validator
        return await obstore.get_async(self._client, file.location, options=options)

    def _one(self) -> Listing:
        """The listing of a reference that names one object."""
        meta = self.wait(self._head(), "looking for it")
        if meta is None:
            raise self.refused("there is no object of this name, nor any below it")
        self._must_be_sound(meta)
        file = _file(meta, self._reference.path.rpartition("/")[2])
        return Listing((file,), revision_of((file,)))

    def _must_be_sound(self, meta: ObjectMeta) -> None:
        """Raise OriginFailed for an object that is longer than any file."""
        if not is_length(meta["size"]):
            words = f"its listing cannot be used: {meta['path']!r:.100} has {meta['size']} bytes"
            raise self.refused(words)

    # -- Waiting for the client --------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, Told]) -> concurrent.futures.Future[Told]:
        """Have the client do it.  Raises OriginFailed once the origin is closed."""
        try:
            return self._thread.submit(work)
        except RuntimeError:
            raise OriginFailed(self._reference.text, "the origin was closed") from None

    def wait(self, work: Coroutine[Any, Any, Told], what: str, seconds: float = 0.0) -> Told:
        """Have the client do it, and wait.  Raises as `finish`."""
        return self.finish(self.begin(work), what, seconds)

    def finish(
        self, future: concurrent.futures.Future[Told], what: str, seconds: float = 0.0
    ) -> Told:
        """What the client did.  Raises OriginFailed, OriginTimeout or OriginChanged."""
        from obstore.exceptions import BaseError

        bound = seconds or self._patience.connect + self._patience.progress + _SLACK_SECONDS
        try:
            return future.result(bound)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise OriginTimeout(self._reference.text, what, bound) from None
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            words = f"{what}: the stream was closed"
            raise OriginFailed(self._reference.text, words) from None
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(what, error) from None

    def _failure(self, what: str, error: Exception) -> WeightdError:
        """What the client says, in as many words as are the store's own."""
        source, text = self._reference.text, str(error)
        kind = type(error).__name__
        if kind == "PreconditionError":
            return OriginChanged(source, f"{what} is another one", http_status=412)
        status = _STATUS.search(text)
        if status is None and _TIMED_OUT.search(text):
            return OriginTimeout(source, what, self._patience.progress)
        if status is not None:
            return refused(source, int(status[1]), f"{what}: {words_of_xml(text)}", None)
        said = hushed(text.partition("\n")[0])
        retryable = not isinstance(error, FileNotFoundError | PermissionError | ValueError)
        return OriginFailed(source, printable(f"{what}: {said}"), retryable=retryable)

    def refused(self, words: str) -> OriginFailed:
        """What trying again does not help."""
        return OriginFailed(self._reference.text, words, retryable=False)


class ObjectStream:
    """The body of one object's range, in the client's own pieces."""

    def __init__(
        self, origin: ObjectsOrigin, file: RemoteFile, body: AsyncIterator[bytes], length: int
    ) -> None:
        self._origin = origin
        self._file = file
        self._body = body
        self._left = length
        self._piece = memoryview(b"")
        self._changing = threading.Lock()
        self._coming: concurrent.futures.Future[bytes | None] | None = None
        self._closed = False

    def readinto(self, buffer: memoryview) -> int:
        """See `Stream.readinto`."""
        if self._closed:
            raise self._was_closed()
        if self._left <= 0 or not len(buffer):
            return 0
        if not len(self._piece):
            self._piece = memoryview(self._next())
        size = min(len(buffer), len(self._piece), self._left)
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        self._left -= size
        return size

    def _next(self) -> bytes:
        """The next piece; the one after it is on its way when this returns."""
        piece = self._origin.finish(self._begin(), self._file.path)
        if not piece:
            words = f"{self._file.path}: it ended {self._left} bytes before its end"
            raise OriginFailed(self._origin.source, words)
        with self._changing:
            self._coming = None
        if self._left > len(piece):
            self._begin()
        return piece

    def _begin(self) -> concurrent.futures.Future[bytes | None]:
        with self._changing:
            if self._closed:
                raise self._was_closed()
            if self._coming is None:
                self._coming = self._origin.begin(_next_of(self._body))
            return self._coming

    def _was_closed(self) -> OriginFailed:
        return OriginFailed(self._origin.source, f"{self._file.path}: the stream was closed")

    def close(self) -> None:
        """See `Stream.close`."""
        with self._changing:
            self._closed = True
            coming = self._coming
        if coming is not None:
            coming.cancel()


async def _next_of(body: AsyncIterator[bytes]) -> bytes | None:
    return await anext(body, None)


def _file(meta: ObjectMeta, path: str) -> RemoteFile:
    return RemoteFile(path, meta["size"], meta["path"], validator=_quoted(meta["e_tag"]))


def _quoted(etag: str | None) -> str | None:
    """An ETag as a condition says it; some stores list it without its quotes."""
    return etag if etag is None or etag.endswith('"') else f'"{etag}"'


def _without_markers(found: Iterable[ObjectMeta], prefix: str) -> Iterator[ObjectMeta]:
    """The objects that are files: consoles put empty ones where a directory would stand."""
    found = list(found)
    directories = {prefix.rstrip("/")}
    for meta in found:
        path = meta["path"]
        while "/" in path:
            path = path.rpartition("/")[0]
            directories.add(path)
    for meta in found:
        if meta["size"] or meta["path"] not in directories:
            yield meta
