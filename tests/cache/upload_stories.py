"""What a cache is asked to do by those who fill directories themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cache.doubles import bytes_of
from tests.cache.node import BLOCK, Node
from weightd.cache import Announced, Owner, PutOutcome, UploadView
from weightd.errors import InvalidRequest
from weightd.model import Key

KEY = Key("org/model")

FILES = {"weights": bytes_of("uploaded", 3 * BLOCK - 1), "a/b": bytes_of("more", BLOCK)}

OWNER = Owner(os.geteuid(), os.getegid())


async def begin(
    node: Node, key: Key = KEY, files: dict[str, bytes] | None = None, *, wait: float = 0.0
) -> UploadView:
    announced = [Announced(path, len(body)) for path, body in (files or FILES).items()]
    return await node.cache.uploads.begin(key, announced, OWNER, wait=wait, trusted=False)


def fill(view: UploadView, files: dict[str, bytes] | None = None) -> None:
    for path, body in (files or FILES).items():
        place = Path(view.path, path)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(body)


async def upload(node: Node) -> PutOutcome:
    """Half of it, which is looked at, then the rest."""
    view = await begin(node)
    fill(view, {"weights": FILES["weights"]})
    await node.cache.uploads.tidy()
    fill(view)
    return await node.cache.uploads.commit(view.id)


async def mend(node: Node) -> PutOutcome:
    """One that is wrong at first, and as it was then."""
    view = await begin(node)
    fill(view)
    wrong = view.path / "wrong"
    wrong.write_bytes(b"")
    with pytest.raises(InvalidRequest):
        await node.cache.uploads.commit(view.id)
    wrong.unlink()
    return await node.cache.uploads.commit(view.id)


async def give_up(node: Node) -> None:
    view = await begin(node)
    fill(view)
    await node.cache.uploads.cancel(view.id)


async def forget(node: Node) -> None:
    """Begun, and never thought of again."""
    view = await begin(node)
    fill(view)
    await node.cache.uploads.tidy()
    node.clock.advance(node.options.upload_ttl + 1.0)
    await node.cache.uploads.tidy()
    assert not Path(view.path).exists() or node.cache.uploads.views()
