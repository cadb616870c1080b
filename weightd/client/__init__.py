"""The Python client: `Client` blocks, `AsyncClient` awaits; both do the same.

Nothing is imported before it is used, so that a program which asks for one
path pays for one socket.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightd.client.asynchronous import AsyncClient
    from weightd.client.client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from weightd.client.client import Client

        return Client
    if name == "AsyncClient":
        from weightd.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
