"""Which references the operator lets anybody fetch from, and which of them see a credential."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from weightd.errors import ADMIN_SOCKET, OPERATOR, Forbidden, InvalidRequest, OriginFailed
from weightd.origins.addresses import refusal
from weightd.origins.contract import CredentialFile, Trust
from weightd.origins.credentials import unknown_credential
from weightd.origins.reference import Reference


def check_allowed(reference: Reference, trust: Trust) -> None:
    """Raise Forbidden for a source that the settings, or common sense, do not allow.

    Links of a ``file://`` are resolved, so this may wait for a disk.
    """
    if trust.allowed and not any(begins_with(reference.text, one) for one in trust.allowed):
        raise Forbidden(f"{reference} is not among the sources of allow_origins", OPERATOR)
    if reference.kind in ("http", "https"):
        reason = refusal(urlsplit(reference.raw).hostname or "")
        if reason is not None:
            raise Forbidden(f"{reference} is not fetched from, since {reason}", OPERATOR)
    if reference.kind == "file" and not below_any(reference.path, trust.import_roots):
        raise Forbidden(f"{reference} is not below any of import_roots", OPERATOR)


def check_credential(
    name: str, references: Sequence[Reference], trust: Trust, *, anybody: bool = False
) -> None:
    """Raise what keeps a credential from being named for these sources.

    ``anybody`` is for a door where anybody may ask: there Forbidden is raised
    for one that would be shown to any source, and nothing of the others is
    told.  Raises InvalidRequest for a name that there is not, and for one that
    is for none of the sources.
    """
    credential = trust.credential(name)
    if credential is None:
        raise unknown_credential(name, None if anybody else trust.credentials)
    if anybody and not credential.sources:
        reason = f"credential {name!r} is not for everybody, since the settings do not say for what"
        raise Forbidden(reason, ADMIN_SOCKET)
    if not any(is_shown(credential, reference) for reference in references):
        words = f"{name!r} is for none of these sources"
        if not anybody:
            words += f", but for {', '.join(credential.sources)}"
        raise InvalidRequest(what="credential", reason=words)


def is_shown(credential: CredentialFile, reference: Reference) -> bool:
    """Whether a source may see a credential that was named for it and perhaps others."""
    sources = credential.sources
    return not sources or any(begins_with(reference.text, one) for one in sources)


def check_endpoint(reference: Reference, url: str) -> None:
    """Raise OriginFailed for the address of a service, set by the operator, that cannot be used."""
    parts = urlsplit(url)
    reason = refusal(parts.hostname or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        reason = "it is no http:// or https:// address without a password"
    if reason is not None:
        words = f"the endpoint that the environment or credential names cannot be used: {reason}"
        raise OriginFailed(reference.text, words, retryable=False)


def begins_with(text: str, prefix: str) -> bool:
    """Whether a reference is what an entry of the allow list names, or lies below it.

    Only ``*`` at the end of an entry ends it within a word.

    >>> begins_with("https://cdn.org/m", "https://cdn.org")
    True
    >>> begins_with("https://cdn.org.evil.net/m", "https://cdn.org")
    False
    >>> begins_with("hf://org/Llama-8B@main", "hf://org/Llama-*")
    True
    """
    scheme, separator, rest = prefix.partition("://")
    authority, slash, path = rest.partition("/")
    if scheme.lower() in ("http", "https"):
        authority = authority.lower()
    entry = f"{scheme.lower()}{separator}{authority}{slash}{path}"
    if entry.endswith("*"):
        return text.startswith(entry[:-1])
    if not text.startswith(entry):
        return False
    following = text[len(entry) : len(entry) + 1]
    ends = "/?" if slash == "" else "/?@:"
    return entry.endswith("/") or following == "" or following in ends


def below_any(path: str, roots: Sequence[str]) -> bool:
    """Whether a path, its links resolved, is one of the directories or lies below one."""
    found = os.path.realpath(path)
    for root in roots:
        directory = os.path.realpath(root)
        if found == directory or found.startswith(directory.rstrip("/") + "/"):
            return True
    return False
