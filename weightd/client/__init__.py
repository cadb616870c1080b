"""The Python client: `Client` blocks, `AsyncClient` awaits; both do the same.

Nothing is imported before it is used, so that a program which asks for one
path pays for one socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weightd.client.asynchronous import AsyncClient
    from weightd.client.client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "Client":
        return import_module("weightd.client.client").Client
    if name == "AsyncClient":
        return import_module("weightd.client.asynchronous").AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
