"""Everything on disk: arriving, published, doomed, and the two databases.

Only this room renames or unlinks.  It keeps true that a reader sees a whole,
verified model or none, and that what was acknowledged is found again after a
crash at any instant.  It knows no budget, no ledger and no event loop.
"""

from weightd.store.adoption import Offered
from weightd.store.announced import Announced
from weightd.store.arrival import Parked
from weightd.store.copying import NotCopied
from weightd.store.faults import (
    AlreadyPublished,
    Damage,
    NoSpace,
    PinsLost,
    SeizeRefused,
    StillThere,
    Stranded,
    Use,
)
from weightd.store.history_database import HistoryDatabase, Recency, StoredFetch
from weightd.store.ingest import Ingest
from weightd.store.layout import Doomed
from weightd.store.look import Looked, Sight
from weightd.store.part import Part
from weightd.store.pin_database import CHANGES_MAX, Loss, PinChange, PinDatabase, StoredPin
from weightd.store.processes import Process
from weightd.store.replacing import replace_file
from weightd.store.scan import Damaged, Found, ScanReport
from weightd.store.source import BUFFER_BYTES, Claim, Source
from weightd.store.store import Filesystem, Store
from weightd.store.takeover import CopyNeeded
from weightd.store.verify import Flaw, Reading, Verified
from weightd.store.warm import Warming

__all__ = [
    "BUFFER_BYTES",
    "CHANGES_MAX",
    "AlreadyPublished",
    "Announced",
    "Claim",
    "CopyNeeded",
    "Damage",
    "Damaged",
    "Doomed",
    "Filesystem",
    "Flaw",
    "Found",
    "HistoryDatabase",
    "Ingest",
    "Looked",
    "Loss",
    "NoSpace",
    "NotCopied",
    "Offered",
    "Parked",
    "Part",
    "PinChange",
    "PinDatabase",
    "PinsLost",
    "Process",
    "Reading",
    "Recency",
    "ScanReport",
    "SeizeRefused",
    "Sight",
    "Source",
    "StillThere",
    "Store",
    "StoredFetch",
    "StoredPin",
    "Stranded",
    "Use",
    "Verified",
    "Warming",
    "replace_file",
]
