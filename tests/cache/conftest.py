"""Where the tests of the cache put their roots."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.origin import Origin, http_origin
from tests.tiers import THOROUGH


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A directory for many short-lived roots: in memory, where a flush costs nothing.

    It is a real filesystem all the same, with blocks, locks and leases; where time is no
    matter it is the one of the temporary directory.
    """
    memory = Path("/dev/shm")
    if THOROUGH or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="weightd-", dir=memory))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A server to fetch from."""
    with http_origin() as origin:
        yield origin
