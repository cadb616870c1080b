"""The list of models that the settings want on the node, as the file writes it.

::

    [[preload]]
    key = "org/my-model@v1"
    source = "hf://org/my-model@v1"      # or a list, tried in order
    keep = "forever"                     # or for how long after its last use, such as "7d"
    credential = "hub"                   # a name of the credentials
    digest = "…"                         # the content that it has to be, in 64 digits
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from weightd.errors import InvalidKey, InvalidRequest
from weightd.model import Digest, Key, parse_sha256
from weightd.origins.contract import CredentialFile
from weightd.units import DURATION_FORM, parse_duration

PRELOAD_FORM: Final = (
    'tables of the file, such as [[preload]] key = "org/m" source = "hf://org/m" keep = "7d"'
)

_FIELDS: Final = ("key", "source", "keep", "credential", "digest")


@dataclass(frozen=True, slots=True)
class Preload:
    """One model that is to be here, and from where.

    ``keep`` is ``forever``, how many seconds after its last use it stays, or
    None: evicted like any other.  ``credential`` names an entry of the settings,
    ``digest`` is the content that it has to be, whoever serves it.
    """

    key: Key
    sources: tuple[str, ...]
    keep: float | Literal["forever"] | None
    credential: str | None = None
    digest: Digest | None = None

    def __str__(self) -> str:
        from weightd.origins import parse_reference

        told = [] if self.keep is None else [_kept(self.keep)]
        if self.credential is not None:
            told.append(f"with credential {self.credential}")
        if self.digest is not None:
            told.append(f"of digest {self.digest}")
        more = f" ({', '.join(told)})" if told else ""
        sources = ", ".join(parse_reference(source).text for source in self.sources)
        return f"{self.key} from {sources}{more}"


def parse_preloads(given: object) -> tuple[Preload, ...]:
    """Read the tables.  Raises ValueError saying which is wrong, and how."""
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is not a list; it is written as {PRELOAD_FORM}")
    found: dict[Key, Preload] = {}
    for number, table in enumerate(given, 1):
        preload = _preload(number, table)
        if preload.key in found:
            raise ValueError(f"table {number}: {preload.key} is there twice; name it once")
        found[preload.key] = preload
    return tuple(found.values())


def check_credentials(preloads: Sequence[Preload], credentials: tuple[CredentialFile, ...]) -> None:
    """Raise ValueError for a preload whose credential there is not, or is not for its sources."""
    from weightd.origins import Trust, check_credential, parse_reference

    trust = Trust(credentials=credentials)
    for number, preload in enumerate(preloads, 1):
        if preload.credential is None:
            continue
        references = [parse_reference(source) for source in preload.sources]
        try:
            check_credential(preload.credential, references, trust)
        except InvalidRequest as error:
            raise ValueError(f"table {number}: credential: {error.reason}") from None


def _preload(number: int, table: object) -> Preload:
    if not isinstance(table, Mapping):
        raise ValueError(f"table {number} is {table!r}; it is written as {PRELOAD_FORM}")
    for name in table:
        if name not in _FIELDS:
            near = difflib.get_close_matches(str(name), _FIELDS, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(_FIELDS)}"
            raise ValueError(f"table {number}: there is no {name!r}; {advice}")
    try:
        return Preload(
            _key(table), _sources(table), _keep(table), _credential(table), _digest(table)
        )
    except ValueError as error:
        raise ValueError(f"table {number}: {error}") from None


def _key(table: Mapping[str, object]) -> Key:
    given = table.get("key")
    if not isinstance(given, str):
        raise ValueError(f"key: {given!r} is not text such as 'org/my-model@v1'")
    try:
        return Key.parse(given)
    except InvalidKey as error:
        raise ValueError(f"key: {error}") from None


def _sources(table: Mapping[str, object]) -> tuple[str, ...]:
    # What speaks to origins takes a while to import, and most settings name none.
    from weightd.origins import parse_reference

    given = table.get("source")
    sources = [given] if isinstance(given, str) else given
    if not isinstance(sources, Sequence) or not sources:
        raise ValueError(f"source: {given!r} is no reference such as 'hf://org/m', and no list")
    for source in sources:
        if not isinstance(source, str):
            raise ValueError(f"source: {source!r} is no reference such as 'hf://org/m'")
        try:
            parse_reference(source)
        except InvalidRequest as error:
            raise ValueError(f"source: {error.reason}") from None
    return tuple(sources)


def _keep(table: Mapping[str, object]) -> float | Literal["forever"] | None:
    given = table.get("keep")
    if given is None or given == "forever":
        return given
    if not isinstance(given, str | int | float) or isinstance(given, bool):
        raise ValueError(f"keep: {given!r} is neither 'forever' nor {DURATION_FORM}")
    try:
        return parse_duration(str(given))
    except ValueError:
        raise ValueError(f"keep: {given!r} is neither 'forever' nor {DURATION_FORM}") from None


def _credential(table: Mapping[str, object]) -> str | None:
    given = table.get("credential")
    if given is not None and not isinstance(given, str):
        raise ValueError(f"credential: {given!r} is no name of the credentials")
    return given


def _digest(table: Mapping[str, object]) -> Digest | None:
    given = table.get("digest")
    if given is None:
        return None
    try:
        return parse_sha256(str(given))
    except ValueError:
        raise ValueError(f"digest: {given!r} is not 64 hexadecimal digits") from None


def _kept(keep: float | Literal["forever"]) -> str:
    return "kept forever" if keep == "forever" else f"kept {keep:g}s after its last use"
