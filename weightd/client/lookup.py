"""Where a model is, and nothing else about it: what every replica asks before it starts.

Apart from the other calls, whose records a command that asks this does without.
"""

from __future__ import annotations

from weightd.client.effects import Flow, Request
from weightd.client.http1 import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightd.client.asking import Asking
    from weightd.client.mount import Mount


def path(asking: Asking, mount: Mount, key: str) -> Flow[str]:
    """Where the model is.  Raises NotResident."""
    if mount.root is None:
        answer = yield from asking.answer(path_of(key))
        return answer.body.decode("utf-8", "surrogateescape")
    from weightd.client import calls, flows

    told = yield from asking.document(calls.get(key))
    model = yield from flows.placed(mount, told)
    here: str = model.path
    return here


def path_of(key: str) -> Request:
    """A lookup that answers the path and nothing else."""
    return Request("GET", "/v1/models/" + quoted(key, "/@"), {"Accept": "text/plain"})
