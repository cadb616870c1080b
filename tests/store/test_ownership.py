"""A user's files made ours, and his again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from weightd.store import ownership

ANOTHER = 65534


@pytest.mark.needs("root")
def test_what_was_setuid_is_never_that_while_it_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer has it open, and could run it as whom it belongs to."""
    place = tmp_path / "weights"
    place.write_bytes(b"#!/bin/sh\n")
    os.chown(place, ANOTHER, ANOTHER)
    place.chmod(0o6755)
    seen = []
    give, allow = os.fchown, os.fchmod

    def chown(descriptor: int, uid: int, gid: int) -> None:
        give(descriptor, uid, gid)
        seen.append(os.fstat(descriptor))

    def chmod(descriptor: int, mode: int) -> None:
        allow(descriptor, mode)
        seen.append(os.fstat(descriptor))

    monkeypatch.setattr(os, "fchown", chown)
    monkeypatch.setattr(os, "fchmod", chmod)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        was = ownership.before(descriptor)
        ownership.own(descriptor, 0o600)
        ownership.give_back(descriptor, was)
    finally:
        os.close(descriptor)
    ours = [one.st_mode for one in seen if one.st_uid == os.geteuid()]
    assert ours
    assert not any(mode & (stat.S_ISUID | stat.S_ISGID) for mode in ours)
    assert (seen[-1].st_uid, stat.S_IMODE(seen[-1].st_mode)) == (ANOTHER, 0o755)


@pytest.mark.needs("root")
def test_a_directory_hands_on_its_group_as_before(tmp_path: Path) -> None:
    place = tmp_path / "below"
    place.mkdir()
    os.chown(place, ANOTHER, ANOTHER)
    place.chmod(0o2770)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        was = ownership.before(descriptor)
        ownership.own(descriptor, 0o700)
        ownership.give_back(descriptor, was)
    finally:
        os.close(descriptor)
    after = place.stat()
    assert (after.st_uid, stat.S_IMODE(after.st_mode)) == (ANOTHER, 0o2770)
