"""Replacing a small file elsewhere on the node."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from weightd.store import replace_file


def test_half_a_file_stays_nowhere(tmp_path: Path) -> None:
    place = tmp_path / "weightd"
    replace_file(place, b"all of it")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_file(place, bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["weightd"]
    assert place.read_bytes() == b"all of it"
    assert place.stat().st_mode & 0o777 == 0o644
