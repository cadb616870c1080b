"""The form of a key, for who checks one and needs no more of the words."""

from __future__ import annotations

import re
from typing import Final

KEY_BYTES_MAX: Final = 200
KEY_SEGMENTS_MAX: Final = 6

# fullmatch, never ``$``: a trailing newline is not part of a name.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def key_fault(text: str) -> str | None:
    """Say which part of a key that was percent-decoded is wrong, or None when it is one."""
    if not text:
        return "it is empty"
    if len(text.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        return f"it is longer than {KEY_BYTES_MAX} bytes"
    name, at, revision = text.partition("@")
    segments = name.split("/")
    if len(segments) > KEY_SEGMENTS_MAX:
        return f"it has {len(segments)} segments, more than {KEY_SEGMENTS_MAX}"
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            return _segment_reason("segment", segment)
    if at and not _SEGMENT.fullmatch(revision):
        return _segment_reason("revision", revision)
    return None


def _segment_reason(what: str, text: str) -> str:
    if not text:
        return f"a {what} is empty"
    return f"{what} {text!r} is not a letter or digit followed by letters, digits, '.', '_' or '-'"
