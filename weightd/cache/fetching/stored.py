"""Jobs and partials as they are written down, and their strict readers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from weightd import errors
from weightd.cache.fetching.job import Caller, Job
from weightd.cache.fetching.terms import ENDED, FetchTerms
from weightd.errors import HolderFigures, WeightdError
from weightd.model import Key
from weightd.origins import parse_reference
from weightd.origins.contract import Listing, RemoteFile

_HOLDER_FIELDS: Final = ("holder", "ttl", "forever", "digest", "uid")
_JOB_FIELDS: Final = (
    "fingerprint", "digest", "credential", "created_at", "uid", "preload", "state", "revision",
    "started_at", "ended_at", "retry_at", "attempts", "bytes_total", "bytes_done", "bytes_reused",
)  # fmt: skip
# Not where they are: that may be an address with a secret in it, and is listed anew.
_FILE_FIELDS: Final = ("path", "bytes", "sha256", "validator")


def encode_job(job: Job) -> str:
    """A job as one line of JSON, without what is secret in its sources."""
    fields = {name: getattr(job, name) for name in _JOB_FIELDS}
    fields |= {"sources": job.shown, "source": parse_reference(job.source).text}
    holders = [
        {name: getattr(terms, name) for name in _HOLDER_FIELDS}
        for terms in (caller.terms for caller in job.callers)
        if terms.holder is not None
    ]
    return json.dumps({**fields, "holders": holders, "error": encode_error(job.error)})


def decode_job(id: str, key: str, text: str, order: int, now: float) -> Job:
    """Read what `encode_job` wrote.  Raises ValueError, KeyError or TypeError for anything else."""
    fields: dict[str, Any] = json.loads(text)
    known = {name: fields[name] for name in _JOB_FIELDS}
    known["sources"] = tuple(str(source) for source in fields["sources"])
    known["source"] = str(fields["source"])
    job = Job(key=Key.parse(key), id=id, order=order, asked_at=now, **known)
    job.error = decode_error(fields["error"])
    if job.state not in ENDED:
        job.state = "queued"
        # They wait no more, and their pins are taken all the same.
        job.callers = [
            Caller(FetchTerms(job.sources, **holder), until=now, here=False)
            for holder in fields["holders"]
        ]
    return job


def encode_error(error: WeightdError | None) -> dict[str, object] | None:
    """An error by the name of its class and its fields."""
    if error is None:
        return None
    fields = {one.name: getattr(error, one.name) for one in dataclasses.fields(error)}
    return {"class": type(error).__name__, "fields": fields}


def decode_error(told: Mapping[str, Any] | None) -> WeightdError | None:
    """The error again.  Raises ValueError for what is none."""
    if told is None:
        return None
    kind = getattr(errors, told["class"], None)
    if not (isinstance(kind, type) and issubclass(kind, WeightdError)):
        raise ValueError(f"{told['class']!r:.100} is no error of weightd")
    fields = dict(told["fields"])
    if "holders" in fields:
        fields["holders"] = tuple(HolderFigures(*one) for one in fields["holders"])
    made: WeightdError = kind(**fields)
    return made


def encode_note(job: Job, listing: Listing) -> bytes:
    """What an unfinished arrival says of itself: whose it is, and what was listed."""
    files = [{name: getattr(file, name) for name in _FILE_FIELDS} for file in listing.files]
    fields = {
        "job": job.id,
        "key": str(job.key),
        "source": parse_reference(job.source).text,
        "revision": listing.revision,
        "files": files,
    }
    # As short as it can be: it may be of 10,000 files.
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decode_note(note: bytes) -> tuple[str, Listing]:
    """The source and the listing of a note, which has no locations.

    Raises ValueError for what `encode_note` did not write.
    """
    try:
        fields: dict[str, Any] = json.loads(note)
        files = tuple(_decode_file(file) for file in fields["files"])
        source, revision = fields["source"], fields["revision"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is no note of weightd: {error!r:.100}") from error
    if not isinstance(source, str) or not isinstance(revision, str | None):
        raise ValueError("a note of another kind")
    return source, Listing(files, revision)


def _decode_file(fields: Mapping[str, Any]) -> RemoteFile:
    """Raises ValueError, KeyError or TypeError."""
    path, bytes, sha256, validator = (fields[name] for name in _FILE_FIELDS)
    sized = bytes is None or (type(bytes) is int and bytes >= 0)
    optional = isinstance(sha256, str | None) and isinstance(validator, str | None)
    if not (isinstance(path, str) and sized and optional):
        raise ValueError("a file of a note of another kind")
    return RemoteFile(path=path, bytes=bytes, location="", sha256=sha256, validator=validator)
