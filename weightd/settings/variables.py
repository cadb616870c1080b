"""Variables of the environment that look like a setting and are none.

Not every ``WEIGHTD_…`` is meant for the daemon: Kubernetes makes some for a Service that is
called weightd, and the commands have theirs.  So only a name that is close to a setting's is
told of.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

PREFIX: Final = "WEIGHTD_"

_COMMANDS: Final = re.compile(r"(?:FAILPOINT|HOLDER|WAIT|(?:PATH|KEY)(?:_.*)?)")
"""What `weightd run` takes and gives, and what the tests of weightd say."""

_KUBERNETES: Final = re.compile(
    r"(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_.*)?)"
)
_KUBERNETES_PORT: Final = re.compile(r"(?:.*_)?PORT")
"""Of the same Service, if its value is an address such as ``tcp://10.0.0.1:9777``."""

_CLOSE: Final = 0.75


def misspelt(environ: Mapping[str, str], settings: Iterable[str]) -> dict[str, str]:
    """The variables that were meant for one of the ``settings``, and for which."""
    known = {name.upper() for name in settings}
    found = {}
    for variable, value in environ.items():
        name = variable.upper().removeprefix(PREFIX)
        if name == variable.upper() or name in known or _is_of_others(name, value):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
        if near:
            found[variable] = near[0].lower()
    return found


def _is_of_others(name: str, value: str) -> bool:
    if _KUBERNETES_PORT.fullmatch(name) and "://" in value:
        return True
    return bool(_KUBERNETES.fullmatch(name) or _COMMANDS.fullmatch(name))
