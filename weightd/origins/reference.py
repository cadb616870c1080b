"""References: what a caller writes to say where weights come from.

A reference is checked here as far as its text goes, before anything is asked
of anybody, and is from then on shown by its canonical ``text``, in which no
secret stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from weightd.errors import InvalidRequest
from weightd.model import file_path_fault
from weightd.origins.contract import ORIGIN_KINDS, OriginKind
from weightd.origins.hubname import HubName
from weightd.origins.query import PATTERN_OPTIONS, read_options, redacted

REFERENCE_BYTES_MAX: Final = 4096
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):", re.ASCII)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029\ud800-\udfff]")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_OBJECT_OPTIONS: Final = {
    "s3": (*PATTERN_OPTIONS, "anonymous", "region"),
    "gs": (*PATTERN_OPTIONS, "anonymous"),
    "az": (*PATTERN_OPTIONS, "anonymous"),
}


@dataclass(frozen=True, slots=True)
class Reference:
    """One place that weights can come from.

    ``text`` is canonical and may be shown, logged and kept; ``raw`` is what
    fetches, and differs from it where the query carries a secret.
    ``authority`` is the host (with its port unless that is the default), the
    bucket or the organisation; ``path`` what follows it, decoded but for
    ``http`` and ``https``; ``options`` the query's parameters that weightd
    itself understands.
    """

    kind: OriginKind
    text: str
    raw: str = field(repr=False, compare=False)
    authority: str = ""
    path: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def secret(self) -> bool:
        """Whether ``text`` does not suffice to fetch."""
        return self.raw != self.text

    def option(self, name: str) -> tuple[str, ...]:
        """Every value that the query gives for ``name``."""
        return tuple(value for one, value in self.options if one == name)

    def __str__(self) -> str:
        return self.text


def parse_reference(text: str) -> Reference:
    """Read a reference.  Raises InvalidRequest for what is none, naming the reason."""
    if len(text.encode(errors="replace")) > REFERENCE_BYTES_MAX:
        raise invalid(f"it is longer than {REFERENCE_BYTES_MAX} bytes")
    if _UNPRINTABLE.search(text):
        raise invalid("it contains a control character or a line break")
    match = _SCHEME.match(text)
    known = ", ".join(f"{kind}://" for kind in ORIGIN_KINDS)
    if match is None:
        raise invalid(f"it names no scheme; there are {known}")
    scheme = match[1].lower()
    kind = next((one for one in ORIGIN_KINDS if one == scheme), None)
    if kind is None:
        raise invalid(f"there is no origin {scheme}://; there are {known}")
    rest = text[match.end() :]
    if not rest.startswith("//"):
        raise invalid(f"{kind}: is not followed by //")
    rest = rest[2:]
    if kind == "http" or kind == "https":
        return _web(kind, rest)
    if kind == "hf":
        return _hub(rest)
    return _file(rest) if kind == "file" else _objects(kind, rest)


def invalid(reason: str) -> InvalidRequest:
    """The refusal of a reference."""
    return InvalidRequest(what="source", reason=reason)


def check_segments(path: str) -> None:
    """Raise InvalidRequest where a part of a decoded path would leave what lies before it.

    A server or a filesystem may resolve it, and the allow list does not.
    """
    for segment in re.split(r"[/\\]", path):
        if segment in (".", ".."):
            raise invalid(f"it has the segment {segment!r}")


# -- One reader per form ---------------------------------------------------------


def _web(kind: OriginKind, rest: str) -> Reference:
    if not rest.isascii() or " " in rest or "\\" in rest:
        raise invalid("a URL is percent-encoded ASCII without spaces and backslashes")
    if "#" in rest:
        raise invalid("it has a fragment, which no server is told")
    try:
        parts = urlsplit(f"{kind}://{rest}")
        authority = web_authority(parts)
    except ValueError as error:
        raise invalid(f"it is no URL: {_told(error)}") from None
    check_segments(unquote(parts.path))
    path = parts.path or "/"
    name = unquote(path.rpartition("/")[2])
    if not name:
        raise invalid("its path names no file")
    if (fault := file_path_fault(name)) is not None or "/" in name:
        raise invalid(f"its last segment names no file: {fault or 'it has a /'}")
    return Reference(
        kind,
        text=_joined(kind, authority, path, redacted(parts.query)),
        raw=_joined(kind, authority, path, parts.query),
        authority=authority,
        path=path,
    )


def web_authority(parts: SplitResult) -> str:
    """Host and port as one writes them; the default port is left out.

    Raises ValueError for userinfo, no host, or a port that is none.
    """
    if "@" in parts.netloc:
        raise ValueError("it carries a user or a password; name a credential instead")
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("it names no host")
    shown = f"[{host}]" if ":" in host else host
    port = parts.port
    return shown if port in (None, DEFAULT_PORTS.get(parts.scheme)) else f"{shown}:{port}"


def _hub(rest: str) -> Reference:
    path, options = read_options(rest, PATTERN_OPTIONS)
    name = HubName.parse(path)
    text = f"hf://{name}" + _query(rest)
    return Reference(
        "hf", text, text, name.repository.partition("/")[0], str(name), options=options
    )


def _objects(kind: OriginKind, rest: str) -> Reference:
    path, options = read_options(rest, _OBJECT_OPTIONS[kind])
    bucket, _, prefix = path.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise invalid(f"{bucket!r:.100} names no bucket")
    prefix = prefix.rstrip("/")
    if not prefix:
        raise invalid(f"it names no prefix below {bucket}, and a whole bucket is no model")
    if (fault := file_path_fault(prefix)) is not None:
        raise invalid(f"the prefix names no objects: {fault}")
    for name, value in options:
        if name == "region" and not re.fullmatch(r"[a-z0-9-]{1,64}", value, re.ASCII):
            raise invalid("its region is not lower-case letters, digits and '-'")
        if name == "anonymous" and value not in ("true", "false"):
            raise invalid("anonymous is neither true nor false")
    text = f"{kind}://{bucket}/{prefix}" + _query(rest)
    return Reference(kind, text, text, bucket, prefix, options)


def _file(rest: str) -> Reference:
    encoded, options = read_options(rest, PATTERN_OPTIONS)
    host, slash, below = encoded.partition("/")
    if host.lower() not in ("", "localhost"):
        raise invalid("file:// is followed by an absolute path, as in file:///shared/model")
    path = unquote(slash + below, errors="surrogateescape").rstrip("/")
    if not path or "\0" in path:
        raise invalid("it names no file or directory")
    check_segments(path)
    if (fault := file_path_fault(path.lstrip("/"))) is not None:
        raise invalid(f"it names no file or directory: {fault}")
    written = (slash + below).rstrip("/")
    text = f"file://{written}" + _query(rest)
    return Reference("file", text, text, "", path, options)


def _query(rest: str) -> str:
    _, mark, query = rest.partition("?")
    return mark + query if query else ""


def _joined(kind: str, authority: str, path: str, query: str) -> str:
    return f"{kind}://{authority}{path}" + (f"?{query}" if query else "")


def _told(error: ValueError) -> str:
    """What a parser says, unless it repeats the text, in which a password may stand."""
    words = str(error)
    return words if words.startswith("it ") else "its host or port cannot be read"
