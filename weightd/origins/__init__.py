"""Where weights come from on a miss: a reference -> a listing -> bytes.

Every origin blocks and is called from threads.  None knows the store, the
ledger or the event loop; one contract (`weightd.origins.contract`), which one
suite of tests holds every one of them to.
"""

from weightd.origins.allowing import check_allowed, check_credential
from weightd.origins.contract import Listing, Origin, Patience, RemoteFile, Stream, Trust
from weightd.origins.opening import open_origin
from weightd.origins.reference import Reference, parse_reference

__all__ = [
    "Listing",
    "Origin",
    "Patience",
    "Reference",
    "RemoteFile",
    "Stream",
    "Trust",
    "check_allowed",
    "check_credential",
    "open_origin",
    "parse_reference",
]
