"""What an option's text may mean, and what it may not."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.settings import values
from weightd.settings.values import Listen, Share


@pytest.mark.parametrize(
    ("text", "written", "loopback"),
    [
        ("127.0.0.1:9777", "127.0.0.1:9777", True),
        ("localhost:0", "127.0.0.1:0", True),
        ("127.8.8.8:1", "127.8.8.8:1", True),
        ("[::1]:9777", "[::1]:9777", True),
        ("0.0.0.0:9777", "0.0.0.0:9777", False),
        ("[::]:65535", "[::]:65535", False),
        ("10.1.2.3:80", "10.1.2.3:80", False),
    ],
)
def test_listener_address(text: str, written: str, loopback: bool) -> None:
    listen = Listen.parse(text)
    assert listen is not None
    assert (str(listen), listen.loopback) == (written, loopback)


@pytest.mark.parametrize("text", ["none", "NONE", " none "])
def test_listener_off(text: str) -> None:
    assert Listen.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":9777",
        "9777",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "::1:80",
        "[127.0.0.1]:80",
        "[::1:80",
        "example.org:80",
        "127.0.0.1:٣",
        "127.0.0.1:80:80",
    ],
)
def test_listener_address_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not ADDRESS:PORT"):
        Listen.parse(text)


@given(st.integers(1, 100), st.integers(0, 10**15))
def test_percentage_is_of_the_filesystem(percent: int, filesystem: int) -> None:
    assert Share.parse(f"{percent}%").of(filesystem) == filesystem * percent // 100


@given(st.integers(0, 10**17), st.integers(0, 10**15))
def test_bytes_are_bytes_on_any_filesystem(amount: int, filesystem: int) -> None:
    assert Share.parse(str(amount)).of(filesystem) == amount


@pytest.mark.parametrize("text", ["0", "0%", "0.0GB", "0.9", "0B"])
def test_capacity_that_comes_to_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="comes to no bytes"):
        values.parse_capacity(text)


@pytest.mark.parametrize("text", ["", "-1", "101%", "12XB", "1e9", "GB", "80 percent", "NaN"])
def test_share_refused(text: str) -> None:
    with pytest.raises(ValueError, match="80%"):
        Share.parse(text)


@pytest.mark.parametrize(("text", "mode"), [("0660", 0o660), ("660", 0o660), ("0o600", 0o600)])
def test_socket_mode(text: str, mode: int) -> None:
    assert values.parse_socket_mode(text) == mode


@pytest.mark.parametrize("text", ["", "66", "0888", "rw-rw----", "06660", "-660"])
def test_socket_mode_refused(text: str) -> None:
    with pytest.raises(ValueError, match="octal"):
        values.parse_socket_mode(text)


@pytest.mark.parametrize("text", ["0644", "0555", "0044", "0222"])
def test_published_files_are_read_only(text: str) -> None:
    with pytest.raises(ValueError, match="0444"):
        values.parse_file_mode(text)


def test_group_by_name_and_number() -> None:
    mine = grp.getgrgid(os.getgid())
    assert values.parse_group(mine.gr_name) == mine.gr_gid
    assert values.parse_group("12345") == 12345
    with pytest.raises(ValueError, match="no group 'no-such-group'"):
        values.parse_group("no-such-group")
    # The kernel takes the number behind the greatest for none.
    assert values.parse_group(str(2**32 - 2)) == 2**32 - 2
    for number in (str(2**32 - 1), "9" * 5000):
        with pytest.raises(ValueError, match="more than the kernel's"):
            values.parse_group(number)


def test_paths_become_absolute() -> None:
    assert values.parse_path("cache") == Path.cwd() / "cache"
    assert values.parse_path("~") == Path.home()
    with pytest.raises(ValueError, match="is not a path"):
        values.parse_path("")


def test_socket_path_is_bounded_by_the_kernel() -> None:
    path = "/" + "s" * 106
    assert values.parse_socket_path(path) == Path(path)
    with pytest.raises(ValueError, match="108 bytes"):
        values.parse_socket_path("/" + "s" * 107)


@pytest.mark.parametrize("text", ["0", "0s", "0ms"])
def test_patience_is_longer_than_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="no time at all"):
        values.parse_patience(text)
