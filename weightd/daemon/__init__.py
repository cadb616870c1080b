"""The composition root: settings become store, cache, apps, sockets and a life cycle.

Nothing below knows of anything here.  The daemon binds its own sockets (a
server's own would be open to everybody) and owns its signals (a server's own
handling ends the process before the cache is flushed).
"""

from weightd.daemon.refusal import StartRefused
from weightd.daemon.service import serve

__all__ = ["StartRefused", "serve"]
