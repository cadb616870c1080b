"""Every byte of the budget: who has it, who is promised it, who may lose it.

The ledger is pure.  It reads no clock (``now`` is an argument), touches no
disk and takes no lock; it decides, and the cache acts.  Each call either
changes the books completely or raises and changes nothing.
"""

from weightd.ledger.entries import Doomed, Pinning, Remains, Reservation, Succession, Usage
from weightd.ledger.generations import Generation, IllegalMove, Standing
from weightd.ledger.ledger import Ledger
from weightd.ledger.pins import holder_figures
from weightd.ledger.planning import Room, disk_full
from weightd.ledger.policy import POLICIES, LeastRecentlyUsed, Policy, PolicyName

__all__ = [
    "POLICIES",
    "Doomed",
    "Generation",
    "IllegalMove",
    "LeastRecentlyUsed",
    "Ledger",
    "Pinning",
    "Policy",
    "PolicyName",
    "Remains",
    "Reservation",
    "Room",
    "Standing",
    "Succession",
    "Usage",
    "disk_full",
    "holder_figures",
]
