"""The unix socket is what its settings say from the first instant on, and takes nobody's place."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from weightd.daemon.listeners import open_tcp, open_unix
from weightd.daemon.refusal import StartRefused
from weightd.settings import Listen


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "weightd.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("narrow_umask")
@pytest.mark.parametrize("wanted", [0o600, 0o660, 0o666])
def test_modes_do_not_depend_on_the_umask(place: Path, wanted: int) -> None:
    door = open_unix(place, wanted, None)
    assert mode(place) == wanted
    assert mode(place.parent) == 0o755
    door.close()
    assert not place.exists()


def test_mode_of_a_parent_that_is_there_stays(place: Path) -> None:
    place.parent.mkdir(mode=0o700)
    open_unix(place, 0o660, None).close()
    assert mode(place.parent) == 0o700


@pytest.mark.needs("root")
def test_group(place: Path) -> None:
    door = open_unix(place, 0o660, 12345)
    assert place.stat().st_gid == 12345
    door.close()


def test_stale_socket_is_replaced(place: Path) -> None:
    place.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))
    door = open_unix(place, 0o660, None)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(place))
    door.close()


def test_socket_that_answers_stays(place: Path) -> None:
    first = open_unix(place, 0o660, None)
    with pytest.raises(StartRefused, match="another process answers"):
        open_unix(place, 0o660, None)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(place))
    first.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_stays(place: Path, kind: str) -> None:
    place.parent.mkdir()
    if kind == "file":
        place.write_text("mine")
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to("elsewhere")
    before = place.lstat()
    with pytest.raises(StartRefused, match="not a socket"):
        open_unix(place, 0o660, None)
    assert place.lstat().st_ino == before.st_ino


def test_name_that_somebody_took_over_stays(place: Path) -> None:
    door = open_unix(place, 0o660, None)
    place.unlink()
    successor = open_unix(place, 0o660, None)
    door.close()
    assert place.exists()
    successor.close()


@pytest.mark.needs("root")
def test_directory_of_a_stranger_in_a_shared_place_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    strangers = shared / "weightd-0"
    strangers.mkdir()
    os.chown(strangers, 12345, 12345)
    with pytest.raises(StartRefused, match="belongs to uid 12345"):
        open_unix(strangers / "weightd.sock", 0o660, None)


def test_failed_bind_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "weightd.sock"
    with pytest.raises(StartRefused, match="cannot be bound"):
        open_unix(Path("/proc/nowhere/weightd.sock"), 0o660, None)
    assert not place.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp(host: str) -> None:
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("cannot be had: IPv6 on this machine")
    with closing(open_tcp(Listen(host, 0))) as door:
        address = (door.address.host, door.address.port)
        with socket.create_connection(address, timeout=60):
            pass
        with pytest.raises(StartRefused, match=r"Address already in use.*--listen none"):
            open_tcp(Listen(host, address[1]))
