"""Where a test puts files so that an origin of each kind lists and reads them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference

_SECONDS: Final = itertools.count(1_700_000_000)
PATIENCE: Final = Patience(connect=10.0, progress=20.0)


@dataclass(frozen=True, slots=True)
class Place:
    """One kind of origin as the contract's suite uses it.

    ``put`` replaces one file, None to remove it.  ``single`` says that a
    reference names one file; ``states_sha256`` and ``knows_change`` what the
    origin tells; ``ranges`` whether it gives parts of files.
    """

    put: Callable[[str, bytes | None], None]
    reference: str
    trust: Trust = field(default_factory=Trust)
    credential: str | None = None
    single: bool = False
    ranges: bool = True
    states_sha256: frozenset[str] = frozenset()
    knows_change: bool = True

    def open(self, patience: Patience = PATIENCE) -> Origin:
        return open_origin(
            parse_reference(self.reference),
            trust=self.trust,
            patience=patience,
            credential=self.credential,
        )


def put_file(root: Path, path: str, content: bytes | None) -> None:
    """Put a file as whoever publishes on a shared filesystem should: whole, by a rename."""
    target = root / path
    if content is None:
        target.unlink()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    arriving = target.with_name(f".{target.name}.arriving")
    arriving.write_bytes(content)
    # A server's ETag may be made of the length and the time in whole seconds.
    written = next(_SECONDS)
    os.utime(arriving, (written, written))
    arriving.rename(target)


def listing_of(root: Path, files: Mapping[str, bytes]) -> None:
    """Write ``listing.json`` of some files."""
    told = [{"path": path, "bytes": len(content)} for path, content in files.items()]
    (root / "listing.json").write_text(json.dumps({"files": told}))
