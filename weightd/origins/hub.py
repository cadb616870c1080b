"""``hf://``: a repository of a Hugging Face hub, or of anything that speaks like one.

One call says what there is at a revision (commit, sizes, sha256 of large
files); bytes are then read at that commit, so that a push in between changes
nothing.  A hub sends the bytes of large files by redirect from another host,
which never sees the token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from weightd.errors import OriginChanged, OriginFailed
from weightd.model import Digest
from weightd.origins.allowing import check_endpoint
from weightd.origins.answers import is_length, is_text, read_json
from weightd.origins.client import Answer, Credential, HttpClient
from weightd.origins.contract import Listing, OriginKind, Patience, RemoteFile, Stream, Trust
from weightd.origins.credentials import as_header, read_credential, read_secret
from weightd.origins.hubname import HubName
from weightd.origins.hubpatterns import select
from weightd.origins.query import matches
from weightd.origins.ranged import open_ranged
from weightd.origins.reference import Reference, invalid
from weightd.origins.urls import target_of
from weightd.origins.web import explained

PUBLIC_HUB: Final = "https://huggingface.co"
_ANSWER_BYTES_MAX: Final = 32 << 20
_FILES_MAX: Final = 50_000
"""Files of a repository, of which a model is as many as it may have."""

_MARKS_MAX: Final = 40 * _FILES_MAX
"""Brackets, quotes and commas; what a hub says of a file has 30."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}", re.ASCII)
_ADVICE: Final = "set HF_TOKEN, or name a credential in the request"


class HubOrigin:
    """See `weightd.origins.contract.Origin`."""

    kind: OriginKind = "hf"

    def __init__(
        self, reference: Reference, trust: Trust, patience: Patience, credential: str | None
    ) -> None:
        self._reference = reference
        self._name = HubName.parse(reference.path)
        self._endpoint = endpoint(os.environ)
        check_endpoint(reference, self._endpoint)
        self._client = HttpClient(
            reference.text,
            patience,
            ca_file=trust.ca_file,
            credential=self._credential(trust, credential),
        )

    def list(self) -> Listing:
        """See `Origin.list`."""
        with self._client.hushing():
            return self._client.must_not_repeat(self._listing())

    def open(self, file: RemoteFile, start: int = 0, stop: int | None = None) -> Stream:
        """See `Origin.open`."""

        def check(answer: Answer) -> None:
            self._must_be_listed(file, answer)

        return open_ranged(self._client, self._endpoint + file.location, file, start, stop, check)

    def close(self) -> None:
        """See `Origin.close`."""
        self._client.close()

    # -- Asking ----------------------------------------------------------------------

    def _ask(self, path: str) -> Mapping[str, object]:
        answer = self._client.get(self._endpoint + path)
        try:
            if answer.status != 200:
                raise self._failure(answer)
            body = answer.read(_ANSWER_BYTES_MAX)
        finally:
            answer.close()
        try:
            told = read_json(body, _MARKS_MAX)
        except ValueError as error:
            raise self._refused(f"its listing cannot be used: {error}") from None
        if not isinstance(told, dict):
            raise self._refused("it answers no object, so it is no hub")
        return told

    def _failure(self, answer: Answer) -> OriginFailed:
        failure = answer.failure()
        if answer.status in (401, 403):
            # A hub says this of a repository that is not there, too.
            return explained(failure, self._client.credential, _ADVICE)
        return failure

    def _must_be_listed(self, file: RemoteFile, answer: Answer) -> None:
        """Raise where the hub says that it is not what was listed, or not to be had."""
        if answer.headers.get("X-Error-Code") == "RevisionNotFound":
            answer.discard()
            words = f"the commit that {file.path} was listed at is gone"
            raise OriginChanged(self._reference.text, words, http_status=answer.status)
        if answer.status in (401, 403):
            raise self._failure(answer)
        for hop in answer.hops:
            linked = hop.get("X-Linked-ETag", "").strip('"')
            if _SHA256.fullmatch(linked) and file.sha256 not in (None, linked):
                raise OriginChanged(self._reference.text, f"{file.path} is another one")

    def _credential(self, trust: Trust, name: str | None) -> Credential | None:
        source = self._reference.text
        found: tuple[str, str] | None
        if name is None:
            found = token(source, os.environ)
        else:
            found = read_credential(source, name, trust), f"credential {name!r}"
        if found is None:
            return None
        secret, what = found
        return Credential(
            as_header(source, secret, what), target_of(urlsplit(self._endpoint)), what
        )

    # -- What is listed ----------------------------------------------------------------

    def _listing(self) -> Listing:
        name = self._name
        revision = quote(name.revision or "main", safe="")
        told = self._ask(f"/api/models/{quote(name.repository)}/revision/{revision}?blobs=true")
        commit = told.get("sha")
        siblings = told.get("siblings")
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise self._refused("it tells no commit")
        if not isinstance(siblings, list):
            raise self._refused("it lists no files")
        if len(siblings) > _FILES_MAX:
            raise self._refused(f"it lists {len(siblings)} files, more than {_FILES_MAX}")
        # A repository that was renamed is told by its new name, and read under it.
        repository = told.get("id")
        if not isinstance(repository, str) or not is_text(repository):
            repository = name.repository
        files = [self._file(repository, commit, entry) for entry in siblings]
        chosen = self._chosen(files)
        return Listing(tuple(sorted(chosen, key=lambda file: file.path)), commit)

    def _file(self, repository: str, commit: str, entry: object) -> RemoteFile:
        if not isinstance(entry, dict) or not isinstance(entry.get("rfilename"), str):
            raise self._refused("it lists a file without a name")
        path, length, blob = entry["rfilename"], entry.get("size"), entry.get("blobId")
        stored = entry.get("lfs")
        sha256 = _stated(stored) if isinstance(stored, dict) else None
        if isinstance(stored, dict) and isinstance(stored.get("size"), int):
            length = stored["size"]
        if not is_text(path):
            raise self._refused(f"its listing cannot be used: {path!r:.100} is not text")
        if length is not None and not is_length(length):
            words = f"its listing cannot be used: {path!r:.100} has no size that is a length"
            raise self._refused(words)
        return RemoteFile(
            path=path,
            bytes=length if isinstance(length, int) else None,
            location=f"/{quote(repository)}/resolve/{commit}/{quote(path)}",
            sha256=sha256,
            validator=sha256 or (blob if isinstance(blob, str) and is_text(blob) else commit),
        )

    def _chosen(self, files: Sequence[RemoteFile]) -> Sequence[RemoteFile]:
        """The files that the reference means, by their paths below its subfolder."""
        name = self._name
        named = [file for file in files if file.path == name.subfolder]
        if named:
            # One file that is named is what is wanted, whatever it is.
            return [replace(named[0], path=name.subfolder.rpartition("/")[2])]
        within = below(files, name.subfolder)
        if not within:
            where = f"{name.subfolder!r}" if name.subfolder else "a file"
            raise self._refused(f"there is not {where} in it")
        allow, ignore = self._reference.option("allow"), self._reference.option("ignore")
        if not (allow or ignore):
            return select(self._reference.text, within, name.quantisation)
        chosen = [file for file in within if matches(file.path, allow, ignore)]
        if not chosen:
            words = f"its patterns leave none of {len(within)} files of {self._reference}"
            raise invalid(words)
        if name.quantisation is not None:
            return select(self._reference.text, chosen, name.quantisation)
        return chosen

    def _refused(self, words: str) -> OriginFailed:
        return OriginFailed(self._reference.text, words, retryable=False)


def below(files: Sequence[RemoteFile], subfolder: str) -> Sequence[RemoteFile]:
    """The files below a subfolder, with paths as they are below it."""
    if not subfolder:
        return files
    start = f"{subfolder}/"
    return [
        replace(file, path=file.path.removeprefix(start))
        for file in files
        if file.path.startswith(start)
    ]


def endpoint(environ: Mapping[str, str]) -> str:
    """The hub that the environment names, without a slash at its end."""
    return (environ.get("HF_ENDPOINT") or PUBLIC_HUB).strip().rstrip("/")


def token(source: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The token of the environment, and where it was found; None where there is none.

    Raises OriginFailed for a file that is named and cannot be read.
    """
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if value := environ.get(variable, "").strip():
            return value, f"the token of {variable}"
    named = environ.get("HF_TOKEN_PATH")
    if named:
        return read_secret(source, named, "the file of HF_TOKEN_PATH"), "the token of HF_TOKEN_PATH"
    path = _home(environ) / "token"
    if not path.is_file() or not os.access(path, os.R_OK):
        return None
    return read_secret(source, str(path), "the hub's token file"), "the hub's token file"


def _home(environ: Mapping[str, str]) -> Path:
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser()
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface"


def _stated(stored: Mapping[str, object]) -> Digest | None:
    sha256 = stored.get("sha256")
    return sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None
