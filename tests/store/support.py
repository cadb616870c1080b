"""Doubles and helpers of the store's tests: sources of bytes, puts, readers in other processes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from weightd.model import FileEntry, GenerationId, Key, Manifest, content_digest
from weightd.store import Ingest, Parked, Source, Store

TarFormat = Literal["ustar", "gnu", "pax"]
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


class Bytes:
    """A source of given bytes that hands out at most ``piece`` at a time."""

    def __init__(self, data: bytes, piece: int = 1 << 20) -> None:
        self._stream = io.BytesIO(data)
        self._piece = piece

    def readinto(self, buffer: memoryview) -> int:
        return self._stream.readinto(buffer[: self._piece])


class Zeros:
    """A source of so many zero bytes, without holding them."""

    def __init__(self, count: int) -> None:
        self._left = count

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), self._left)
        self._left -= count
        return count


class Claims:
    """Adds up what is claimed."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, count: int) -> None:
        assert count > 0
        self.total += count


def manifest_of(key: Key, files: Sequence[FileEntry], sequence: int = 1) -> Manifest:
    return Manifest(key, content_digest(files), tuple(files), sequence, 1_700_000_000.5)


def put(store: Store, key: str, files: Mapping[str, bytes | Source], sequence: int = 1) -> Manifest:
    """Publish ``files`` under ``key``."""
    parsed = Key.parse(key)
    with store.begin(parsed) as ingest:
        entries = [
            ingest.receive_file(
                path,
                Bytes(content) if isinstance(content, bytes) else content,
                claim=Claims(),
                length=None,
                sha256=None,
            )
            for path, content in files.items()
        ]
        manifest = manifest_of(parsed, entries, sequence)
        store.publish(ingest, manifest)
    return manifest


def unlink_all(store: Store, ids: Sequence[GenerationId]) -> int:
    """Doom and unlink; the bytes freed."""
    freed = Claims()
    for doomed in store.doom(ids):
        assert store.unlink(doomed, freed) == 0
    return freed.total


def tar(files: Mapping[str, bytes], format: TarFormat = "pax") -> bytes:
    """An archive of regular files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=FORMATS[format]) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def tree_of(path: Path) -> dict[str, bytes]:
    """Every regular file below ``path`` with its content."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


def names_in(store: Store, directory: str) -> list[str]:
    return sorted(os.listdir(store.root / directory))


@contextmanager
def process(code: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Another process running ``code``, once it has printed ``ready``; it ends when stdin does."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.stdin.close()


_IN_A_NAMESPACE = """
import os, subprocess, sys
root, mount, inside = sys.argv[1:]
subprocess.run(['mount', '--bind', root, mount], check=True)
subprocess.run(['mount', '-o', 'remount,bind,ro', mount], check=True)
os.execv(sys.executable, [sys.executable, '-c', %r, os.path.join(mount, inside)])
"""


@contextmanager
def process_elsewhere(
    code: str, root: Path, mount: Path, path: Path
) -> Iterator[subprocess.Popen[str]]:
    """As `process`, told of ``path`` as it is below a read-only mount of ``root`` of its own.

    The mount is in a namespace that ends with the process.  Skips where none can be had.
    """
    mount.mkdir()
    arguments = map(str, (root, mount, path.relative_to(root)))
    with subprocess.Popen(
        ["unshare", "-m", sys.executable, "-c", _IN_A_NAMESPACE % code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            if running.stdout.readline() != "ready\n":
                said = running.stderr.read().strip()
                pytest.skip(f"cannot be had here, no namespace: {said}")
            assert not os.path.ismount(mount), "the mount is to be seen from nowhere else"
            yield running
        finally:
            running.stdin.close()


OPENS = "import sys; f = open(sys.argv[1], 'rb'); print('ready', flush=True); sys.stdin.read()"

MAPS = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
print('ready', flush=True); sys.stdin.read()
"""

HOLDS = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_SH)
print('ready', flush=True); sys.stdin.read()
"""


class Ledger:
    """Adds up what parts claim and what they tell they wrote, from any thread."""

    def __init__(self) -> None:
        self.claimed = 0
        self.written = 0
        self._adding = threading.Lock()

    def claim(self, count: int) -> None:
        assert count > 0
        with self._adding:
            self.claimed += count

    def wrote(self, count: int) -> None:
        assert count != 0
        with self._adding:
            self.written += count


def du(path: Path) -> int:
    """The bytes of blocks of all regular files below ``path``, each file once."""
    files = [file.lstat() for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return sum({one.st_ino: one.st_blocks * 512 for one in files}.values())


def begun(store: Store, key: Key, *, resume: Parked | None = None) -> Ingest:
    """An arrival that is on the disk."""
    ingest = store.begin(key, resume=resume)
    ingest.make()
    return ingest
