from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weightd.store import Store


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with Store.open(root) as opened:
        yield opened


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A temporary directory that other users may pass through; pytest's own keeps them out."""
    with tempfile.TemporaryDirectory(prefix="weightd-test-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.fixture
def small_filesystem(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 8 MiB, which a test can fill.  Its test needs the part ``root``."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "weightd-test", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot be had here, mounting is not allowed: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
