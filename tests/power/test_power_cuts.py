"""Rule 5 after each of many power cuts under load."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from tests.power.image import EATMYDATA, Image, build
from tests.power.machine import BOOTED_WITHIN, Failed, Knowledge, Machine, booted, new_disk

CUTS: Final = int(os.environ.get("WEIGHTD_POWER_CUTS", "20"))
SEED: Final = int(os.environ.get("WEIGHTD_POWER_SEED", "1"))
LONGEST: Final = 8.0
"""Seconds of load before a cut."""

pytestmark = [
    pytest.mark.needs("qemu-system-x86_64", "busybox", "cpio", "depmod", "mkfs.ext4", "mkfs.xfs"),
    pytest.mark.timeout(6 * 3600),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image") / "parts")


def load(machine: Machine, knowledge: Knowledge, seconds: float) -> list[int]:
    """Boot, check what the last cut left, work for so long; models and pins that were found."""
    found: list[int] = []
    until = time.monotonic() + BOOTED_WITHIN
    for said in machine.listen(until):
        knowledge.hear(said)
        found = said.get("verified", found)
        if "loading" in said:
            break
    else:
        raise Failed(f"it did not come up within {BOOTED_WITHIN} s:\n{machine.said()}")
    for said in machine.listen(time.monotonic() + seconds):
        knowledge.hear(said)
    return found


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_nothing_acknowledged_is_lost(
    image: Image, tmp_path: Path, filesystem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = random.Random(f"{SEED} {filesystem}")
    knowledge = Knowledge()
    new_disk(tmp_path, filesystem)
    for cut in range((CUTS + 1) // 2 + 1):
        seconds = source.uniform(0.2, LONGEST)
        with booted(image, tmp_path, filesystem, knowledge, source.randrange(10**6)) as machine:
            models, pins = load(machine, knowledge, seconds)
        with capfd.disabled():
            print(  # noqa: T201 - it takes minutes, and is watched
                f"\n{filesystem}: after cut {cut} {models} models and {pins} pins stood; "
                f"{knowledge.told} changes told so far; cut again after {seconds:.1f} s of load",
                end="",
                flush=True,
            )
    assert knowledge.told > CUTS


@pytest.mark.skipif(
    not list(Path("/usr/lib").glob(f"*/{EATMYDATA}")), reason="needs libeatmydata1: make test-deps"
)
def test_a_daemon_that_flushes_nothing_is_found_out(image: Image, tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    knowledge = Knowledge()
    new_disk(tmp_path, "ext4")
    # The filesystem itself writes down what it has every few seconds; not here.
    words = "weightd.unsynced=unsynced weightd.options=commit=300"
    with booted(image, tmp_path, "ext4", knowledge, 1, words) as machine:
        load(machine, knowledge, LONGEST)
    with (
        pytest.raises(Failed, match="in verify"),
        booted(image, tmp_path, "ext4", knowledge, 2, words) as machine,
    ):
        load(machine, knowledge, 0.0)
