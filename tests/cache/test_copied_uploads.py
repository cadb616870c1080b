"""An upload of another user's files, which are copied: cut short and failed at every step.

Root copies nothing, since it may own everything; so this is told in a process
of root's that may not.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.cache.doubles import PATIENCE
from tests.cache.node import Node, running, soon
from tests.cache.stories import CAPACITY, a_full_node, is_as_good_as_new
from tests.cache.test_cancellation import cut_at, cut_while_held
from tests.cache.test_disk_errors import FAILURES
from tests.cache.upload_stories import FILES, begin
from tests.tiers import THOROUGH
from weightd.errors import WeightdError
from weightd.store import NoSpace

ANOTHER: Final = 65534

Cut = Callable[[Node, int], Awaitable[bool]]
"""Break the story at its n-th step; False when it has no such step."""


async def upload(node: Node) -> None:
    """The room for it is made by eviction, and again that for the copy."""
    view = await begin(node)
    for path, body in FILES.items():
        his = node.root.parent / path.replace("/", "-")
        write = ["sh", "-c", 'cat > "$0"', str(his)]
        subprocess.run(write, input=body, user=ANOTHER, check=True)
        os.replace(his, view.path / path)
    await node.cache.uploads.commit(view.id)
    for path, body in FILES.items():
        place = (await node.get("org/model")) / path
        assert (place.stat().st_uid, place.read_bytes()) == (0, body)


async def fails(node: Node, nth: int, failure: str) -> bool:
    await node.quiet()
    node.workers.fail(nth, FAILURES[failure]())
    with suppress(WeightdError, NoSpace):
        await soon(upload(node))
    await node.only_loops()
    failed = node.workers.failed
    node.workers.fail(0, FAILURES[failure]())
    return failed


CUTS: Final[dict[str, Cut]] = {
    "suspended": lambda node, nth: cut_at(upload, node, nth),
    "before": lambda node, nth: cut_while_held(upload, node, nth, after=False),
    "after": lambda node, nth: cut_while_held(upload, node, nth, after=True),
    "eio": lambda node, nth: fails(node, nth, "eio"),
    "enospc": lambda node, nth: fails(node, nth, "enospc"),
}


async def every(cut: Cut, place: Path) -> int:
    nth, went_on = 0, True
    while went_on:
        nth += 1
        here = place / str(nth)
        here.mkdir()
        here.chmod(0o777)
        async with running(here / "root", CAPACITY) as node:
            await a_full_node(node)
            went_on = await cut(node, nth)
            await is_as_good_as_new(node)
    return nth


def main(place: Path, name: str) -> None:
    place.chmod(0o711)
    sys.stdout.write(str(asyncio.run(every(CUTS[name], place))))


@pytest.mark.needs("root", "setpriv")
@pytest.mark.parametrize("name", CUTS if THOROUGH else ["suspended", "after", "eio"])
def test_it_leaves_nothing(quick_path: Path, name: str) -> None:
    run = (
        "import sys; from pathlib import Path; from tests.cache.test_copied_uploads import main; "
        "main(Path(sys.argv[1]), sys.argv[2])"
    )
    ran = subprocess.run(
        ["setpriv", "--bounding-set=-chown", sys.executable, "-c", run, str(quick_path), name],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=4 * PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 5
    assert "this is a bug" not in ran.stderr
