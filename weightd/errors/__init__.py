"""One class per thing a caller can do about it, with the figures as attributes.

``code`` is the error's name everywhere: in Python, over HTTP, in the metrics
and in the exit code of the command line.  ``retryable`` says whether the same
request can succeed later with nobody changing a setting.  ``detail`` says what
happened, with the figures, and what to do next.

A miss (`NotResident`), a model that can never fit (`TooLarge`) and one that
cannot fit now (`Blocked`) are three different answers, and derive from three
different built-in exceptions so that no ``except`` clause takes one for another.

The classes are made when the first is asked for: a program that meets no error
does without them, and they take longer to make than a lookup.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightd.errors.base import HolderFigures, RootUnusable, WeightdError
    from weightd.errors.conflict import Busy, Exists, InUse, Pinned
    from weightd.errors.missing import (
        GenerationGone,
        NotPinned,
        NotResident,
        UnknownFetch,
        UnknownFile,
        UnknownUpload,
    )
    from weightd.errors.origin import OriginChanged, OriginFailed, OriginTimeout
    from weightd.errors.request import DigestMismatch, InvalidArchive, InvalidKey, InvalidRequest
    from weightd.errors.room import Blocked, BlockedReason, DiskFull, TooLarge
    from weightd.errors.service import (
        ADMIN_SOCKET,
        OPERATOR,
        Draining,
        Forbidden,
        Starting,
        TooMany,
        Unauthorized,
    )
    from weightd.errors.transfer import (
        FetchCancelled,
        IncompleteBody,
        IoError,
        Stalled,
        StateUnwritable,
    )

__all__ = [
    "ADMIN_SOCKET",
    "OPERATOR",
    "Blocked",
    "BlockedReason",
    "Busy",
    "DigestMismatch",
    "DiskFull",
    "Draining",
    "Exists",
    "FetchCancelled",
    "Forbidden",
    "GenerationGone",
    "HolderFigures",
    "InUse",
    "IncompleteBody",
    "InvalidArchive",
    "InvalidKey",
    "InvalidRequest",
    "IoError",
    "NotPinned",
    "NotResident",
    "OriginChanged",
    "OriginFailed",
    "OriginTimeout",
    "Pinned",
    "RootUnusable",
    "Stalled",
    "Starting",
    "StateUnwritable",
    "TooLarge",
    "TooMany",
    "Unauthorized",
    "UnknownFetch",
    "UnknownFile",
    "UnknownUpload",
    "WeightdError",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from weightd.errors import base, conflict, missing, origin, request, room, service, transfer

        for home in (base, conflict, missing, origin, request, room, service, transfer):
            globals().update({one: told for one, told in vars(home).items() if one in __all__})
        return globals()[name]
