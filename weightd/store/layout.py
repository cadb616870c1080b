"""Names below the root, and what a name says about who wrote it.

::

    .weightd.lock  FORMAT  state.db*  history.db*
    incoming/<id>/{manifest.json, <last segment>/...}
    models/<key, "/" as "+">.<first 16 digits of the digest>/
        {manifest.json, superseded, damaged, <last segment>/...}
    doomed/<id>/...

An id is 32 random hexadecimal digits, so that an arrival keeps its name when
it is moved to ``doomed/`` and nothing ever collides there.  Any other name was
not written by weightd: it is reported and left alone.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

from weightd.errors import InvalidKey
from weightd.model import GenerationId, Key

LOCK: Final = ".weightd.lock"
FORMAT: Final = "FORMAT"
FORMAT_VERSION: Final = 1
STATE: Final = "state.db"
HISTORY: Final = "history.db"
INCOMING: Final = "incoming"
MODELS: Final = "models"
DOOMED: Final = "doomed"

MANIFEST: Final = "manifest.json"
SUPERSEDED: Final = "superseded"
DAMAGED: Final = "damaged"
"""Says why a model is answered no more, once it was read and found to be another than it was."""

NEXT_MANIFEST: Final = "manifest.json.new"
"""Until it takes the place of the one there is."""

# mkfs puts lost+found at the top of a filesystem that is all ours.
_OWN: Final = frozenset({LOCK, FORMAT, INCOMING, MODELS, DOOMED, "lost+found"})
_DATABASE: Final = re.compile(r"(state|history)\.db(\.lost-[0-9]+)?(-wal|-shm|-journal)?", re.ASCII)
_GENERATION: Final = re.compile(
    r"(?P<key>[A-Za-z0-9][A-Za-z0-9._+@-]*)\.(?P<digest>[0-9a-f]{16})", re.ASCII
)
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Doomed:
    """Something in ``doomed/`` (or an arrival on its way there) that is yet to be unlinked.

    ``bytes`` are the blocks that unlinking will give back, a shared blob being
    counted with the first of the names that go.  ``vanished`` says that the
    directory was gone before it could be moved, so there is nothing to unlink.
    """

    id: str
    bytes: int
    generation: GenerationId | None = None
    vanished: bool = False


def new_id() -> str:
    """A name for ``incoming/`` or ``doomed/`` that was never used before."""
    return secrets.token_hex(16)


def is_id(name: str) -> bool:
    """Whether weightd could have given this name to an arrival."""
    return _ID.fullmatch(name) is not None


def is_own_name(name: str) -> bool:
    """Whether a name at the top of the root is one weightd uses."""
    return name in _OWN or _DATABASE.fullmatch(name) is not None


def own_name(name: str, directory: str) -> str:
    """How our file ``name`` is called in the generation directory ``directory``.

    It stands beside the directory handed out, which ends in the model's own
    name.  A model called like our file gives way to it by nothing: our file
    takes a dot ahead, which no key has.
    """
    model = directory.rpartition(".")[0].rpartition("+")[2].partition("@")[0]
    return f".{name}" if model == name else name


def generation_name(generation: GenerationId) -> str:
    """The directory of a generation below ``models/``.

    ``+`` is in no key, so two keys never share a name.
    """
    return f"{str(generation.key).replace('/', '+')}.{generation.digest[:16]}"


def parse_generation_name(name: str) -> GenerationId | None:
    """What `generation_name` was given, but for the rest of the digest; None for a foreign name."""
    match = _GENERATION.fullmatch(name)
    if match is None:
        return None
    try:
        return GenerationId(Key.parse(match["key"].replace("+", "/")), match["digest"])
    except InvalidKey:
        return None
