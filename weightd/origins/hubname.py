"""What a reference to a hub names: a repository, and which part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, unquote

from weightd.errors import InvalidRequest
from weightd.model import file_path_fault

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", re.ASCII)
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}", re.ASCII)
_QUANTISATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# The refs that the hub makes hold a slash, and are written as they are.
_REFS: Final = re.compile(r"refs/(pr/[0-9]+|convert/[A-Za-z0-9._-]+)")
_FORM: Final = "hf:// is followed by org/name[@revision][:quantisation][/subfolder]"


@dataclass(frozen=True, slots=True)
class HubName:
    """``org/name[@revision][:quantisation][/subfolder]``; a subfolder may be one file.

    >>> str(HubName.parse("org/m:Q4_K_M@v1/sub/"))
    'org/m@v1:Q4_K_M/sub'
    """

    repository: str
    revision: str | None = None
    quantisation: str | None = None
    subfolder: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what follows ``hf://``.  Raises InvalidRequest."""
        organisation, _, rest = text.partition("/")
        if not organisation:
            raise _invalid(f"'' is no name; {_FORM}")
        named, rest = _name_and_rest(rest)
        if not rest and not named:
            named, organisation = organisation, ""
        name, revision, quantisation = _parts(named)
        for segment in (organisation, name) if organisation else (name,):
            if not _SEGMENT.fullmatch(segment):
                raise _invalid(f"{segment!r:.100} is no name; {_FORM}")
        subfolder = unquote(rest).strip("/")
        if subfolder and (fault := file_path_fault(subfolder)) is not None:
            raise _invalid(f"its subfolder is none: {fault}")
        repository = f"{organisation}/{name}" if organisation else name
        return cls(repository, revision, quantisation, subfolder)

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{quote(self.revision, safe='+')}"
        quantisation = "" if self.quantisation is None else f":{self.quantisation}"
        subfolder = f"/{quote(self.subfolder)}" if self.subfolder else ""
        return f"{self.repository}{revision}{quantisation}{subfolder}"


def _name_and_rest(text: str) -> tuple[str, str]:
    """The name with its revision, in which a ref of the hub's own may hold a slash."""
    name, at, after = text.partition("@")
    if at and "/" not in name and (match := _REFS.match(after)) is not None:
        ends = len(name) + 1 + match.end()
        more, _, rest = text[ends:].partition("/")
        return text[:ends] + more, rest
    named, _, rest = text.partition("/")
    return named, rest


def _parts(named: str) -> tuple[str, str | None, str | None]:
    """Name, revision and quantisation; the latter two in either order."""
    name = re.split(r"[@:]", named, maxsplit=1)[0]
    found: dict[str, str] = {}
    for mark, value in re.findall(r"([@:])([^@:]*)", named[len(name) :]):
        if mark in found:
            raise _invalid(f"it has two {'revisions' if mark == '@' else 'quantisations'}")
        found[mark] = unquote(value)
    revision, quantisation = found.get("@"), found.get(":")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise _invalid(f"{revision!r:.100} is no revision")
    if quantisation is not None and not _QUANTISATION.fullmatch(quantisation):
        raise _invalid(f"{quantisation!r:.100} is no quantisation")
    return name, revision, quantisation


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(what="source", reason=reason)
