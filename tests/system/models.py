"""Models as a test makes them, puts them, and finds them on disk."""

from __future__ import annotations

import hashlib
import io
import os
import random
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from weightd.model import FileEntry, content_digest
from weightd.units import round_up

BLOCK: Final = 4096
"""Bytes per block of every filesystem that tests run on."""

_OVERHEAD: Final = (
    "manifest.json",
    "superseded",
    "damaged",
    ".arrival.json",
    ".adopted.json",
    ".progress",
)


@dataclass(frozen=True)
class Content:
    """The files of a model, by path.  ``archive`` says to put it as a tar stream."""

    files: tuple[tuple[str, bytes], ...]
    archive: bool = False

    @cached_property
    def digest(self) -> str:
        """The content digest, computed here from the bytes themselves."""
        return content_digest(
            FileEntry(path, len(data), hashlib.sha256(data).hexdigest())
            for path, data in self.files
        )

    @cached_property
    def body(self) -> bytes:
        """What a put of it sends."""
        if not self.archive:
            return self.files[0][1]
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path, data in self.files:
                member = tarfile.TarInfo(path)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return stream.getvalue()

    @property
    def bytes(self) -> int:
        return sum(len(data) for _, data in self.files)

    @property
    def blocks(self) -> int:
        """The bytes of blocks that its files occupy."""
        return sum(round_up(len(data), BLOCK) for _, data in self.files)

    def is_at(self, path: Path) -> bool:
        """Whether exactly these bytes are below ``path``."""
        there = {
            str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).digest()
            for one in path.rglob("*")
            if not one.is_dir()
        }
        return there == {name: hashlib.sha256(data).digest() for name, data in self.files}

    def __repr__(self) -> str:
        return f"<content {self.digest[:8]}, {len(self.files)} files, {self.blocks} bytes>"


def single(key: str, size: int, seed: object = 0) -> Content:
    """One file, named as a put without ``?file=`` names it; other seeds give other bytes."""
    data = random.Random(f"{key} {size} {seed}").randbytes(size)
    return Content(((key.partition("@")[0].rpartition("/")[2], data),))


def directory(key: str, size: int, seed: object = 0, files: int = 3) -> Content:
    """Several files, one of them a level down and one of them empty, in ``size`` bytes or less."""
    source = random.Random(f"{key} {size} {seed} directory")
    shards = tuple(
        (f"shard-{number}.safetensors", source.randbytes(size // (files - 1)))
        for number in range(files - 2)
    )
    below = ("tokenizer/vocab.json", source.randbytes(size // (files - 1)))
    return Content((*shards, below, ("empty", b"")), archive=True)


def weights_on_disk(root: Path) -> dict[int, tuple[int, int]]:
    """Every inode of weights below ``root``: its length in whole blocks, and what it occupies.

    Manifests and marks, which are charged to no model, are left out.
    Only a daemon that stands still is seen at one instant.
    """
    found = {}
    for area in ("incoming", "models", "doomed"):
        for path in _files_below(root / area):
            if path.name in _OVERHEAD and len(path.relative_to(root / area).parts) == 2:
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[status.st_ino] = (round_up(status.st_size, BLOCK), status.st_blocks * 512)
    return found


def _files_below(area: Path) -> Iterator[Path]:
    """What is in the directories of an area; one that vanishes meanwhile is passed over."""
    for directory, _, names in os.walk(area):
        if directory != str(area):
            yield from (Path(directory, name) for name in names)


def blocks_of(root: Path) -> int:
    """The bytes of weights on disk, in whole blocks."""
    return sum(length for length, _ in weights_on_disk(root).values())
