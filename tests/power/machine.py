"""An emulated machine, and what becomes known of it through its console."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.power.image import Image, run

DISK_BYTES: Final = 512 << 20
BOOTED_WITHIN: Final = 600.0
"""Seconds; without hardware support a start of the daemon alone takes half a minute."""


class Failed(AssertionError):
    """The machine saw what must not be."""


@dataclass(slots=True)
class Knowledge:
    """What each model and pin may be, as the console told it."""

    models: dict[str, list[str | None]] = field(default_factory=dict)
    pins: dict[tuple[str, str], list[str | None]] = field(default_factory=dict)
    told: int = 0

    def hear(self, said: dict[str, Any]) -> None:
        if said.get("table") == "models":
            self.models[said["name"]] = said["may"]
            self.told += 1
        elif said.get("table") == "pins":
            holder, key = said["name"]
            self.pins[holder, key] = said["may"]
            self.told += 1

    def written(self, seed: int) -> bytes:
        pins = [[holder, key, may] for (holder, key), may in self.pins.items()]
        return json.dumps({"models": self.models, "pins": pins, "seed": seed}).encode()


class Machine:
    """One life of a machine, from its boot to the cut."""

    def __init__(self, image: Image, place: Path, filesystem: str, words: str) -> None:
        command = [
            *("qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none"),
            *("-machine", "q35", "-cpu", "max", "-m", "768", "-serial", "stdio"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initramfs)),
            *_disk(image.system, "snapshot=on"),
            *_disk(place / "data.img", "cache=writeback"),
            *_disk(place / "known.img", "cache=writeback"),
            "-append",
            f"console=ttyS0 quiet panic=-1 {image.words} weightd.filesystem={filesystem} {words}",
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._rest = b""
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
        for said in self._lines(self._process.stdout.read()):
            knowledge.hear(said)
        self._process.stdout.close()

    def said(self) -> str:
        return self.log[-6000:].decode(errors="replace")

    def _lines(self, more: bytes) -> Iterator[dict[str, Any]]:
        self.log += more
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            if line.startswith(b"@ "):
                said = json.loads(line[2:])
                if "failed" in said:
                    raise Failed(said["failed"])
                yield said


def _disk(path: Path, how: str) -> tuple[str, str]:
    # A write that the machine did not flush is lost with its page cache, which is its
    # memory; one that reached the disk without a flush is not, as on a disk without a cache.
    return "-drive", f"file={path},format=raw,if=virtio,{how}"


@contextmanager
def booted(
    image: Image, place: Path, filesystem: str, knowledge: Knowledge, seed: int, words: str = ""
) -> Iterator[Machine]:
    """A machine that goes on from what is known; cut at the latest when it is left."""
    known = place / "known.img"
    data = knowledge.written(seed)
    known.write_bytes(data + b"\0" * (-len(data) % 4096))
    machine = Machine(image, place, filesystem, words)
    try:
        yield machine
    finally:
        machine.cut(knowledge)


def new_disk(place: Path, filesystem: str) -> None:
    """An empty data disk."""
    disk = place / "data.img"
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    run(*{"ext4": ("mkfs.ext4", "-q"), "xfs": ("mkfs.xfs", "-q")}[filesystem], str(disk))
