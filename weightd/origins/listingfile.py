"""A listing file: what a web server without any listing of its own has of a model.

``{"files": [{"path", "bytes", "sha256"?, "url"?}]}``, where ``url`` is
relative to the listing, and ``path`` stands for it where it is left out.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urljoin

from weightd.errors import Forbidden, InvalidRequest, OriginFailed
from weightd.model import Digest, parse_sha256
from weightd.origins.allowing import check_allowed
from weightd.origins.answers import is_length, is_text, read_json
from weightd.origins.contract import Listing, RemoteFile, Trust
from weightd.origins.reference import Reference, parse_reference
from weightd.origins.revisions import revision_of

LISTING_BYTES_MAX: Final = 8 << 20
"""What the most files there may be take, with long names and hashes."""

FILES_MAX: Final = 10_000
"""As many files as any model may have."""

_MARKS_MAX: Final = 50 * FILES_MAX
"""Brackets, quotes and commas; an entry that says all there is to say has 19."""

_FIELDS: Final = frozenset({"path", "bytes", "sha256", "url"})


def read_listing(reference: Reference, trust: Trust, body: bytes) -> Listing:
    """Read a listing file.  Raises OriginFailed, naming what is wrong in it."""
    try:
        found = read_json(body, _MARKS_MAX)
    except ValueError as error:
        raise _unusable(reference, str(error)) from None
    entries = found.get("files") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise _unusable(reference, "it is no object with a list of 'files'")
    if len(entries) > FILES_MAX:
        raise _unusable(reference, f"it lists {len(entries)} files, more than {FILES_MAX}")
    files = sorted(
        (_file(reference, trust, number, entry) for number, entry in enumerate(entries)),
        key=lambda file: file.path,
    )
    return Listing(tuple(files), revision_of(files))


def _file(reference: Reference, trust: Trust, number: int, entry: object) -> RemoteFile:
    where = f"files[{number}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise _unusable(reference, f"{where} is no object with a 'path'")
    if unknown := sorted(entry.keys() - _FIELDS):
        raise _unusable(reference, f"{where} has a {unknown[0]!r:.60} that is not understood")
    length = entry.get("bytes")
    if not isinstance(length, int) or not is_length(length):
        raise _unusable(reference, f"{where} has no 'bytes' that is a length")
    path = entry["path"]
    if not is_text(path):
        raise _unusable(reference, f"{where} has the 'path' {path!r:.100}, which is not text")
    url = entry.get("url", quote(path))
    if not isinstance(url, str):
        raise _unusable(reference, f"{where} has a 'url' that is no text")
    return RemoteFile(
        path=path,
        bytes=length,
        location=_location(reference, trust, where, url),
        sha256=_sha256(reference, where, entry.get("sha256")),
    )


def _location(reference: Reference, trust: Trust, where: str, url: str) -> str:
    """The URL of a file, which must be one that could be a source of its own."""
    try:
        leads_to = parse_reference(urljoin(reference.raw, url))
        if leads_to.kind not in ("http", "https"):
            raise _unusable(reference, f"{where} leads to {leads_to.kind}://")
        if (reference.kind, leads_to.kind) == ("https", "http"):
            raise _unusable(reference, f"{where} leads from https to http")
        check_allowed(leads_to, trust)
    except (InvalidRequest, ValueError) as error:
        reason = error.reason if isinstance(error, InvalidRequest) else "it is no URL"
        raise _unusable(reference, f"{where} has a 'url' that is none: {reason}") from None
    except Forbidden as error:
        raise _unusable(reference, f"{where}: {error.reason}") from None
    return leads_to.raw


def _sha256(reference: Reference, where: str, stated: object) -> Digest | None:
    if stated is None:
        return None
    try:
        return parse_sha256(stated if isinstance(stated, str) else "")
    except InvalidRequest:
        raise _unusable(reference, f"{where} has a 'sha256' that is none") from None


def _unusable(reference: Reference, words: str) -> OriginFailed:
    return OriginFailed(reference.text, f"its listing cannot be used: {words}", retryable=False)
