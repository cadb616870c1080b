"""Rule 5 after each of many power cuts under load.

One life in three has a budget that forces evictions, and one in five is cut while it
starts or is checked.  The seed decides what the clients do, when the power goes and
which unflushed writes go with it; the machine decides the rest.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from tests.power.image import EATMYDATA, Image, build
from tests.power.machine import (
    BOOTED_WITHIN,
    Failed,
    Knowledge,
    Life,
    Lost,
    Machine,
    booted,
    new_disk,
)

CUTS: Final = int(os.environ.get("WEIGHTD_POWER_CUTS", "20"))
SEED: Final = int(os.environ.get("WEIGHTD_POWER_SEED", "1"))
LONGEST: Final = 8.0
"""Seconds of load before a cut."""

START: Final = 15.0
"""Seconds from the first word of a machine that cover most of the daemon's start."""

WRITES: Final = 20
"""Writes to the disk at most from then to the cut, the last of them unanswered."""

IDLE: Final = 10.0
"""Seconds for those writes; the cut comes after them if the machine writes nothing."""

pytestmark = [
    pytest.mark.needs("qemu-system-x86_64", "busybox", "cpio", "depmod", "mkfs.ext4", "mkfs.xfs"),
    pytest.mark.timeout(6 * 3600),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image") / "parts")


def live(machine: Machine, knowledge: Knowledge, seconds: float, since: str = "loading") -> str:
    """Let it boot, check what the last cut left, and work, until ``seconds`` after it said
    ``since``; what it found, in words.
    """
    found = "nothing was checked"
    for said in machine.listen(time.monotonic() + BOOTED_WITHIN):
        knowledge.hear(said)
        if since in said:
            break
    else:
        raise Failed(f"it did not come up within {BOOTED_WITHIN} s:\n{machine.said()}")
    for said in machine.listen(time.monotonic() + seconds):
        knowledge.hear(said)
    if knowledge.verified is not None:
        found = "{} models and {} pins stood".format(*knowledge.verified)
    return found


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_nothing_acknowledged_is_lost(
    image: Image, tmp_path: Path, filesystem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = random.Random(f"{SEED} {filesystem}")
    knowledge = Knowledge()
    new_disk(tmp_path, filesystem)
    cuts = (CUTS + 1) // 2
    for cut in range(1, cuts + 1):
        since = "booted" if cut % 5 == 4 else "loading"
        seconds = source.uniform(0.2, START if since == "booted" else LONGEST)
        life = Life(filesystem, source.randrange(10**6), evicting=cut % 3 == 0)
        with booted(image, tmp_path, knowledge, life) as machine:
            found = live(machine, knowledge, seconds, since)
            machine.disk.hang(source.randint(1, WRITES), IDLE)
        with capfd.disabled():
            print(  # noqa: T201 - it takes minutes, and is watched
                f"\n{filesystem}, seed {SEED}: {found}; cut {cut} of {cuts} {seconds:.1f} s after "
                f"{since}{', evicting' * life.evicting}: {knowledge.told} changes told, "
                f"{knowledge.evictions} evictions seen, "
                f"{knowledge.lost} of {knowledge.cached} unflushed writes lost",
                end="",
                flush=True,
            )
    with booted(image, tmp_path, knowledge, Life(filesystem, 0)) as machine:
        found = live(machine, knowledge, 0.0)
    with capfd.disabled():
        print(f"\n{filesystem}: after the last cut {found}", end="", flush=True)  # noqa: T201
    assert knowledge.told > CUTS


@pytest.mark.parametrize(
    "life",
    [
        pytest.param(
            Life("ext4", 1, lazy=True),
            marks=pytest.mark.skipif(
                not list(Path("/usr/lib").glob(f"*/{EATMYDATA}")),
                reason="needs libeatmydata1: run make test-power-deps",
            ),
            id="daemon",
        ),
        pytest.param(Life("ext4", 1, lying=True), id="disk"),
    ],
)
def test_who_flushes_nothing_is_found_out(image: Image, tmp_path: Path, life: Life) -> None:
    """Otherwise the test above could not fail."""
    knowledge = Knowledge()
    new_disk(tmp_path, "ext4")
    with booted(image, tmp_path, knowledge, life) as machine:
        live(machine, knowledge, LONGEST)
    assert any(None not in may for may in knowledge.models.values())
    with pytest.raises(Lost), booted(image, tmp_path, knowledge, Life("ext4", 2)) as machine:
        live(machine, knowledge, 0.0)
