"""``https://`` and ``http://``: one file, or a listing file that names several."""

from __future__ import annotations

import base64
import binascii
import re
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import unquote, urlsplit

from weightd.errors import OriginFailed
from weightd.origins.client import Answer, Credential, HttpClient
from weightd.origins.contract import Listing, OriginKind, Patience, RemoteFile, Stream, Trust
from weightd.origins.credentials import as_header, read_credential
from weightd.origins.listingfile import LISTING_BYTES_MAX, read_listing
from weightd.origins.ranged import DATED, FirstTold, open_ranged
from weightd.origins.reference import Reference
from weightd.origins.revisions import revision_of
from weightd.origins.urls import target_of

_CONTENT_RANGE: Final = re.compile(r"bytes 0-0/([0-9]{1,18})", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e]{1,200}"', re.ASCII)
_DATE_SETTLED_SECONDS: Final = 60
"""A date says more than the content's only when the answer is this much younger (RFC 9110)."""


class WebOrigin:
    """One URL.  See `weightd.origins.contract.Origin`."""

    def __init__(
        self, reference: Reference, trust: Trust, patience: Patience, credential: str | None
    ) -> None:
        self.kind: OriginKind = reference.kind
        self._reference = reference
        self._trust = trust
        self._told = FirstTold()
        self._client = HttpClient(
            reference.text,
            patience,
            ca_file=trust.ca_file,
            credential=_credential(reference, trust, credential),
        )

    def list(self) -> Listing:
        """See `Origin.list`."""
        self._told.forget()
        with self._client.hushing():
            single = not self._reference.path.endswith(".json")
            listing = one_file(self._one()) if single else self._listing()
            return self._client.must_not_repeat(listing)

    def open(self, file: RemoteFile, start: int = 0, stop: int | None = None) -> Stream:
        """See `Origin.open`."""
        url = file.location or self._reference.raw
        return open_ranged(self._client, url, file, start, stop, self._explained, self._told)

    def close(self) -> None:
        """See `Origin.close`."""
        self._client.close()

    def _explained(self, answer: Answer) -> None:
        """Say whose credential it was that did not do."""
        if answer.status in (401, 403):
            raise explained(answer.failure(), self._client.credential, "name one in the request")

    # -- Listing -------------------------------------------------------------------

    def _listing(self) -> Listing:
        answer = self._client.get(self._reference.raw)
        try:
            self._explained(answer)
            if answer.status != 200:
                raise answer.failure()
            body = answer.read(LISTING_BYTES_MAX)
        finally:
            answer.close()
        return read_listing(self._reference, self._trust, body)

    def _one(self) -> RemoteFile:
        """What the server tells of the one file."""
        answer = self._client.request("HEAD", self._reference.raw, {})
        with_length = answer.status == 200 and answer.length is not None
        if not with_length and answer.status not in (404, 410, 429) and answer.status < 500:
            # Some answer no HEAD, a signed address above all, or tell no length in it.
            answer.discard()
            answer = self._client.get(self._reference.raw, {"Range": "bytes=0-0"})
        try:
            self._explained(answer)
            if answer.status not in (200, 206, 416):
                raise answer.failure()
            file = self._file(answer)
        finally:
            answer.close()
        if file.validator is None:
            self._told.keep(file.location, answer.headers)
        return file

    def _file(self, answer: Answer) -> RemoteFile:
        name = unquote(urlsplit(self._reference.raw).path.rpartition("/")[2])
        return RemoteFile(
            path=name,
            bytes=_length(answer),
            # The reference itself, which may hold a secret that is not to be written down.
            location="",
            sha256=stated_sha256(answer.headers),
            validator=validator_of(answer.headers),
        )


def one_file(file: RemoteFile) -> Listing:
    """The listing of a single file."""
    return Listing((file,), revision_of((file,)))


def explained(failure: OriginFailed, credential: Credential | None, advice: str) -> OriginFailed:
    """A refusal that says which credential was sent, or how to send one."""
    used = f"no credential was sent; {advice}"
    if credential is not None:
        used = f"with {credential.name}"
    failure.words = f"{failure.words}, {used}"
    return failure


def validator_of(headers: Message) -> str | None:
    """What changes with the content: a strong ETag, else a date that is old enough to tell."""
    etag = headers.get("ETag", "").strip()
    if _STRONG_ETAG.fullmatch(etag):
        return etag
    modified, date = headers.get("Last-Modified"), headers.get("Date")
    try:
        if modified is None or date is None:
            return None
        age = parsedate_to_datetime(date) - parsedate_to_datetime(modified)
    except (TypeError, ValueError):
        return None
    return DATED + modified if age.total_seconds() >= _DATE_SETTLED_SECONDS else None


def stated_sha256(headers: Message) -> str | None:
    """The sha256 that a server states of the whole file, by the headers there are for it."""
    plain = headers.get("X-Checksum-Sha256", "").strip().lower()
    if _SHA256.fullmatch(plain):
        return plain
    stated = f"{headers.get('Repr-Digest', '')},{headers.get('Digest', '')}"
    for part in stated.split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() == "sha-256":
            try:
                digest = base64.b64decode(value.strip(":"), validate=True)
            except (ValueError, binascii.Error):
                continue
            if len(digest) == 32:
                return digest.hex()
    return None


def _length(answer: Answer) -> int | None:
    if answer.status == 200:
        encoded = answer.headers.get("Content-Encoding", "identity").lower() != "identity"
        return None if encoded else answer.length
    told = answer.headers.get("Content-Range", "").strip()
    if answer.status == 416:
        # Nothing has no first byte.
        return 0 if told == "bytes */0" else None
    match = _CONTENT_RANGE.fullmatch(told)
    return None if match is None else int(match[1])


def _credential(reference: Reference, trust: Trust, name: str | None) -> Credential | None:
    if name is None:
        return None
    secret = read_credential(reference.text, name, trust)
    what = f"credential {name!r}"
    header = as_header(reference.text, secret, what)
    return Credential(header, target_of(urlsplit(reference.raw)), what)
