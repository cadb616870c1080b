"""The queries of references: options of weightd's own, and other people's secrets."""

from __future__ import annotations

import math
import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote_plus

from weightd.errors import InvalidRequest

PATTERN_OPTIONS: Final = ("allow", "ignore")

# Names under which signed addresses and tokens are handed around.
_SECRET_NAME: Final = re.compile(
    r"auth|credential|jwt|key|pass|policy|pwd|secret|session|sig|token|^x-(amz|goog)-|^se$|^sv$",
    re.IGNORECASE,
)
_SECRET_LENGTH: Final = 20
"""A value this long that looks random is taken for a secret, whatever its name."""


def read_options(rest: str, known: tuple[str, ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split what follows a scheme into the path and the options of its query, in order.

    Raises InvalidRequest for an option that is not ``known``.
    """
    path, _, query = rest.partition("?")
    options = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in known:
            raise InvalidRequest(
                what="source",
                reason=f"there is no option {name!r:.50}; there are {', '.join(sorted(known))}",
            )
        if not value:
            raise InvalidRequest(what="source", reason=f"the option {name} has no value")
        options.append((name, unquote_plus(value)))
    return path, tuple(options)


def redacted(query: str) -> str:
    """A web query with every value that may be a secret replaced by ``***``."""
    shown = []
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not equals:
            # A bare token is its own name.
            shown.append("***" if _looks_random(name) else name)
        elif _SECRET_NAME.search(unquote_plus(name)) or _looks_random(value):
            shown.append(f"{name}=***")
        else:
            shown.append(part)
    return "&".join(shown)


def _looks_random(value: str) -> bool:
    if len(value) < _SECRET_LENGTH:
        return False
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return bits > 3.0


def matches(path: str, allow: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Whether the patterns let a file through; ``*`` also matches ``/``, as on the hub.

    >>> matches("a/b.bin", ("*.bin",), ("a/",)), matches("b.bin", (), ("*.pt",))
    (False, True)
    """
    if allow and not any(fnmatchcase(path, _whole(pattern)) for pattern in allow):
        return False
    return not any(fnmatchcase(path, _whole(pattern)) for pattern in ignore)


def _whole(pattern: str) -> str:
    return pattern + "*" if pattern.endswith("/") else pattern
