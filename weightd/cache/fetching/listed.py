"""From what an origin lists to what is to be done: what to link, what to read, how much room."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from weightd.cache.context import Context
from weightd.errors import DigestMismatch, OriginFailed
from weightd.model import (
    FILES_MAX,
    Digest,
    FileEntry,
    GenerationId,
    Manifest,
    content_digest,
    file_path_fault,
)
from weightd.origins.contract import Listing, RemoteFile
from weightd.store.names import Names


@dataclass(frozen=True, slots=True)
class Link:
    """A file whose content is here already, in a model that is kept meanwhile."""

    file: RemoteFile
    generation: GenerationId
    path: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``links`` cost nothing; ``reads`` take ``size`` bytes of blocks."""

    listing: Listing
    links: tuple[Link, ...]
    reads: tuple[RemoteFile, ...]
    size: int

    @property
    def reused(self) -> int:
        """The bytes that are linked, as a user counts them."""
        return sum(link.file.bytes or 0 for link in self.links)


def sound(source: str, listing: Listing) -> Listing:
    """The listing, if a model can be made of it.  Raises OriginFailed for one that cannot."""

    def refuse(words: str) -> OriginFailed:
        return OriginFailed(source, words, retryable=False)

    if not listing.files:
        raise refuse("it lists no file")
    if len(listing.files) > FILES_MAX:
        raise refuse(f"it lists {len(listing.files)} files, more than {FILES_MAX}")
    names = Names()
    for file in listing.files:
        if (fault := file_path_fault(file.path)) is not None:
            raise refuse(f"it lists {file.path!r:.100}, which names no file of a model: {fault}")
        if file.bytes is None:
            raise refuse(f"it does not tell the length of {file.path}")
        if (fault := names.add_file(file.path)) is not None:
            raise refuse(f"no model can be made of it, for its {file.path}: {fault}")
    return listing


def content(listing: Listing) -> Digest | None:
    """The digest that the model will have, None where a sha256 is not told before the bytes."""
    entries = [FileEntry(file.path, file.bytes or 0, file.sha256 or "") for file in listing.files]
    return content_digest(entries) if all(entry.sha256 for entry in entries) else None


def must_be(key: str, wanted: Digest | None, listing: Listing) -> None:
    """Raise DigestMismatch for a listing that cannot become the content the caller insists on."""
    told = content(listing)
    if wanted is not None and told is not None and told != wanted:
        raise DigestMismatch(expected=wanted, actual=told, file=key)


def held_to(reference: Listing | None, source: str, listing: Listing) -> Listing:
    """A mirror's listing, with each sha256 that the first origin told.

    Raises OriginFailed for one of another content.
    """
    if reference is None:
        return listing
    first = {file.path: file for file in reference.files}
    if first.keys() != {file.path for file in listing.files}:
        raise OriginFailed(source, "it has other files than the first source", retryable=False)
    return replace(
        listing, files=tuple(_held(first[file.path], source, file) for file in listing.files)
    )


def _held(first: RemoteFile, source: str, file: RemoteFile) -> RemoteFile:
    differs = first.sha256 is not None and file.sha256 not in (None, first.sha256)
    if first.bytes != file.bytes or differs:
        raise OriginFailed(
            source, f"its {file.path} is not that of the first source", retryable=False
        )
    return replace(file, sha256=file.sha256 or first.sha256)


def validators(listing: Listing) -> tuple[tuple[str, str], ...]:
    """What tells that the content of a file whose sha256 is not told is still the same."""
    return tuple(
        (file.path, file.validator)
        for file in listing.files
        if file.sha256 is None and file.validator is not None
    )


def recalled(listing: Listing, manifest: Manifest) -> Listing:
    """The listing, with each sha256 that is known of an earlier fetch from the same source."""
    before = dict(manifest.validators)
    entries = {entry.path: entry for entry in manifest.files if entry.path in before}

    def recall(file: RemoteFile) -> RemoteFile:
        entry = entries.get(file.path)
        if entry is None or file.sha256 is not None or file.bytes != entry.bytes:
            return file
        same = file.validator == before[file.path]
        return replace(file, sha256=entry.sha256) if same else file

    return replace(listing, files=tuple(map(recall, listing.files)))


def unchanged(before: RemoteFile, now: RemoteFile, *, same_source: bool) -> bool:
    """Whether what is here of ``before`` is a part of ``now``."""
    if before.bytes != now.bytes:
        return False
    if before.sha256 is not None and now.sha256 is not None:
        return before.sha256 == now.sha256
    return same_source and before.validator is not None and before.validator == now.validator


def plan(
    context: Context,
    listing: Listing,
    started: Container[str] = (),
    unlinked: Container[Digest | None] = (),
) -> Plan:
    """What to link and what to read; files that were ``started`` are read to their end.

    What is in ``unlinked`` is read although it is here: it could not be linked.
    Decided on the books of this instant: reserve before they change.
    """
    links, reads = [], []
    for file in listing.files:
        known = file.path in started or file.sha256 in unlinked
        link = None if known else _link(context, file)
        if link is None:
            reads.append(file)
        else:
            links.append(link)
    size = sum(context.store.blocks(file.bytes or 0) for file in reads)
    return Plan(listing, tuple(links), tuple(reads), size)


def _link(context: Context, file: RemoteFile) -> Link | None:
    if file.sha256 is None or not file.bytes:
        return None
    found = context.ledger.find_blob(file.sha256, context.store.blocks(file.bytes))
    if found is None:
        return None
    id, _ = found
    for entry in context.models[id].manifest.files:
        if entry.sha256 == file.sha256 and entry.bytes == file.bytes:
            return Link(file, id, entry.path)
    return None
