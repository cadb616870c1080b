"""An emulated machine, and what becomes known of it through its console."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.power.disk import VolatileDisk
from tests.power.image import Image, run

DISK_BYTES: Final = 512 << 20
BOOTED_WITHIN: Final = 1800.0
"""Seconds; without hardware support a start of the daemon alone takes half a minute."""


class Failed(AssertionError):
    """The machine saw what must not be."""


class Lost(Failed):
    """What was acknowledged is not there, or what is there is not accounted for."""


@dataclass(frozen=True, slots=True)
class Life:
    """How a machine lives: on ``ext4`` or ``xfs``, with a budget that is tight or not.

    ``lazy`` is a daemon whose every flush does nothing, ``lying`` a disk that says
    it flushed.
    """

    filesystem: str
    seed: int
    evicting: bool = False
    lazy: bool = False
    lying: bool = False


@dataclass(slots=True)
class Knowledge:
    """What each model and pin may be, as the console told it.

    ``evicting`` says that since the last check whatever is not pinned may have
    been evicted; ``verified`` how many models and pins the last machine found, None
    when it was cut before.  ``cached`` and ``lost`` are the writes that
    the disk had not flushed at the last cut, and those of them that are gone.
    """

    models: dict[str, list[str | None]] = field(default_factory=dict)
    pins: dict[tuple[str, str], list[str | None]] = field(default_factory=dict)
    evicting: bool = False
    verified: list[int] | None = None
    evictions: int = 0
    told: int = 0
    cached: int = 0
    lost: int = 0

    def hear(self, said: dict[str, Any]) -> None:
        if "verified" in said:
            self.verified = said["verified"]
            self.evicting = said["evicting"]
        elif "evicted" in said:
            self.evictions += said["evicted"]
        elif said.get("table") == "models":
            self.models[said["name"]] = said["may"]
            self.told += 1
        elif said.get("table") == "pins":
            holder, key = said["name"]
            self.pins[holder, key] = said["may"]
            self.told += 1

    def written(self, life: Life) -> bytes:
        """What the guest reads: this, and how it is to live."""
        self.evicting |= life.evicting
        self.verified = None
        pins = [[holder, key, may] for (holder, key), may in self.pins.items()]
        known = {"models": self.models, "pins": pins, "evicted": self.evicting}
        return json.dumps(known | asdict(life)).encode()


class Machine:
    """One life of a machine, from its boot to the cut."""

    def __init__(self, image: Image, disk: VolatileDisk, known: Path, life: Life) -> None:
        # A lazy daemon's work the filesystem itself would write down every few seconds.
        words = f"weightd.filesystem={life.filesystem}{' weightd.options=commit=300' * life.lazy}"
        command = [
            *("qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none"),
            *("-machine", "q35", "-cpu", "qemu64", "-m", "768", "-serial", "stdio"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initramfs)),
            *_disk(str(image.system), "readonly=on"),
            *_disk(f"nbd+unix:///?socket={disk.address}", "cache=writeback"),
            *_disk(str(known), "readonly=on"),
            *("-append", f"console=ttyS0 quiet panic=-1 mitigations=off {image.words} {words}"),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._rest = b""
        self.disk = disk
        self.log = b""

    def listen(self, until: float) -> Iterator[dict[str, Any]]:
        """What it says before ``until``, on the monotonic clock; it ends with the machine."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while (left := until - time.monotonic()) > 0:
            if not select.select([descriptor], [], [], left)[0]:
                return
            more = os.read(descriptor, 65536)
            if not more:
                raise Failed(f"the machine ended by itself:\n{self.said()}")
            yield from self._lines(more)

    def cut(self, knowledge: Knowledge) -> None:
        """Cut the power; what was on the wire before is heard."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        with self._process.stdout as console:
            for said in self._lines(console.read()):
                knowledge.hear(said)

    def said(self) -> str:
        return self.log[-6000:].decode(errors="replace")

    def _lines(self, more: bytes) -> Iterator[dict[str, Any]]:
        self.log += more
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            if line.startswith(b"@ "):
                said = json.loads(line[2:])
                if "failed" in said:
                    raise (Lost if said["lost"] else Failed)(said["failed"])
                yield said


def _disk(file: str, how: str) -> tuple[str, str]:
    return "-drive", f"file={file},format=raw,if=virtio,{how}"


@contextmanager
def booted(image: Image, place: Path, knowledge: Knowledge, life: Life) -> Iterator[Machine]:
    """A machine that goes on from what is known; its power is cut when it is left."""
    known = place / "known.img"
    data = knowledge.written(life)
    known.write_bytes(data + b"\0" * (-len(data) % 4096))
    disk = VolatileDisk(place / "data.img", flushing=not life.lying)
    try:
        machine = Machine(image, disk, known, life)
        try:
            yield machine
        finally:
            machine.cut(knowledge)
    finally:
        knowledge.cached, knowledge.lost = disk.cut(random.Random(life.seed))


def new_disk(place: Path, filesystem: str) -> None:
    """An empty data disk."""
    disk = place / "data.img"
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    run(*{"ext4": ("mkfs.ext4", "-q"), "xfs": ("mkfs.xfs", "-q")}[filesystem], str(disk))
