"""Every byte of the budget: who has it, who is promised it, who may lose it.

The ledger is pure.  It reads no clock (``now`` is an argument), touches no
disk and takes no lock; it decides, and the cache acts.  Each call either
changes the books completely or raises and changes nothing.

The figures of a node with 300 GB for weights:

>>> from weightd.model import Blob, Key
>>> GB = 10**9
>>> def put(ledger, name, size, now):
...     blob = Blob(inode=now, sha256=name, bytes=size * GB)
...     return [str(v.key) for v in ledger.admit(Key(name), f"{name}-1", (blob,), now)]
>>> ledger = Ledger(capacity=300 * GB)
>>> put(ledger, "llama-70b", 140, 1), put(ledger, "mixtral", 90, 2)
([], [])
>>> ledger.usage().used // GB
230
>>> ledger.use(Key("llama-70b"), 3).hits
1
>>> put(ledger, "qwen-72b", 145, 4)
['mixtral']
>>> sorted(str(key) for key in ledger.keys()), ledger.usage().used // GB
(['llama-70b', 'qwen-72b'], 285)
>>> ledger.pin("replica-1", Key("llama-70b"), 5).created
True
>>> put(ledger, "falcon", 200, 6)
Traceback (most recent call last):
weightd.errors.room.Blocked: 200 GB do not fit now: 15 GB free, 145 GB evictable, 140 GB pinned \
or in use, 0 B arriving. Held by replica-1 (llama-70b). Wait for a replica to drain \
(?wait=SECONDS does), or place this one on another node.
>>> put(ledger, "grok", 400, 7)
Traceback (most recent call last):
weightd.errors.room.TooLarge: 400 GB can never fit a budget of 300 GB (400000000000 > 300000000000 \
bytes). Raise the capacity, or place this model on another node; trying again will not help.
>>> sorted(str(key) for key in ledger.keys())
['llama-70b', 'qwen-72b']
"""

from weightd.ledger.entries import (
    Doomed,
    Dropped,
    Parked,
    Pinning,
    Remains,
    Reservation,
    Succession,
    Usage,
)
from weightd.ledger.generations import Generation, IllegalMove, Standing
from weightd.ledger.ledger import Ledger
from weightd.ledger.pins import holder_figures
from weightd.ledger.planning import Room, disk_full
from weightd.ledger.policy import POLICIES, LeastRecentlyUsed, Policy, PolicyName

__all__ = [
    "POLICIES",
    "Doomed",
    "Dropped",
    "Generation",
    "IllegalMove",
    "LeastRecentlyUsed",
    "Ledger",
    "Parked",
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
