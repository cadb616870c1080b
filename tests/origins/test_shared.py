"""``file://``: nothing outside the import roots is read, whatever stands in them."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import pytest

from tests.origins.test_contract import read
from weightd.errors import Forbidden, InvalidRequest, OriginChanged, OriginFailed
from weightd.origins import Origin, Patience, Trust, open_origin, parse_reference

CONTENT: Final = b"weights" * 10_000


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory of models beside something that nobody may read."""
    found = tmp_path / "shared"
    (found / "m").mkdir(parents=True)
    (found / "m" / "w.bin").write_bytes(CONTENT)
    (tmp_path / "secret").write_text("secret")
    return found


def opened(base: Path, path: str = "m") -> Origin:
    trust = Trust(import_roots=(str(base),))
    reference = parse_reference(f"file://{base}/{path}")
    return open_origin(reference, trust=trust, patience=Patience())


def refused(origin: Origin) -> OriginFailed:
    with pytest.raises(OriginFailed) as raised:
        origin.list()
    assert not raised.value.retryable
    return raised.value


def test_links_within_the_roots_are_followed(base: Path) -> None:
    """As a hub's cache keeps its snapshots."""
    (base / "blobs").mkdir()
    (base / "blobs" / "1").write_bytes(b"blob")
    (base / "m" / "config.json").symlink_to("../blobs/1")
    origin = opened(base)
    listing = origin.list()
    assert [file.path for file in listing.files] == ["config.json", "w.bin"]
    assert read(origin, listing.files[0]) == b"blob"
    assert read(opened(base, "m/config.json"), listing.files[0]) == b"blob"


def test_a_link_out_of_the_roots_is_refused(base: Path) -> None:
    (base / "m" / "config.json").symlink_to("../../secret")
    assert "leads out of import_roots" in refused(opened(base)).words
    (base / "m" / "config.json").unlink()
    (base / "out").symlink_to("..")
    with pytest.raises(Forbidden):
        opened(base, "out/secret")


def test_a_directory_that_becomes_a_link_meanwhile_is_refused(base: Path) -> None:
    """Asked of the descriptor, not of the name."""
    origin = opened(base)
    (file,) = origin.list().files
    (base.parent / "w.bin").write_bytes(CONTENT)
    (base / "m").rename(base / "before")
    (base / "m").symlink_to(base.parent)
    with pytest.raises(OriginFailed, match="leads out"):
        origin.open(file)


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory"])
def test_what_is_no_plain_file_is_refused(base: Path, kind: str) -> None:
    """And nobody waits for a writer of a pipe."""
    odd = base / "m" / "odd"
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "directory":
        (base / "d").mkdir()
        odd.symlink_to("../d")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            # The name of a socket must be short.
            directory = os.open(base / "m", os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{directory}/odd")
            os.close(directory)
    failure = refused(opened(base))
    assert "odd" in failure.words


def test_patterns_choose(base: Path) -> None:
    (base / "m" / "sub").mkdir()
    (base / "m" / "sub" / "x.json").write_bytes(b"{}")
    assert [one.path for one in opened(base, "m?allow=*.json").list().files] == ["sub/x.json"]
    assert [one.path for one in opened(base, "m?ignore=sub/").list().files] == ["w.bin"]
    with pytest.raises(InvalidRequest, match="patterns"):
        opened(base, "m?allow=nothing").list()


@pytest.mark.parametrize("path", ["absent", "m/w.bin/x", "empty", "m/dangling"])
def test_what_is_not_there(base: Path, path: str) -> None:
    (base / "empty").mkdir()
    (base / "m" / "dangling").symlink_to("nowhere")
    refused(opened(base, path))


def test_a_file_that_is_written_in_place_is_noticed(base: Path) -> None:
    origin = opened(base)
    (file,) = origin.list().files
    stream = origin.open(file)
    buffer = memoryview(bytearray(100))
    try:
        assert stream.readinto(buffer) == 100
        with (base / "m" / "w.bin").open("r+b") as writer:
            writer.write(b"other")
        with pytest.raises(OriginChanged):
            stream.readinto(buffer)
    finally:
        stream.close()
