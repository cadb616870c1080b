"""The HTTP edge: routes that translate between the wire and the cache, and nothing else.

``create_app`` makes one app per door over one `Desk`.  The statuses of errors
are one table in ``problems``; ``bodies`` and ``content`` are the paths of the
bytes in and out, rooms of their own.
"""

from weightd.api.app import create_app, protocol_of
from weightd.api.desk import Desk, Limits
from weightd.api.edge import DrainLimits
from weightd.api.protocol import EdgeProtocol
from weightd.api.routing import Door
from weightd.api.token import Token

__all__ = [
    "Desk",
    "Door",
    "DrainLimits",
    "EdgeProtocol",
    "Limits",
    "Token",
    "create_app",
    "protocol_of",
]
