"""Every refusal is the class that it is inside weightd, with its figures and its words."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import weightd
from tests.client.conftest import CAPACITY
from tests.client.twins import TWINS, twin
from tests.system.daemon import Daemon, running
from weightd import errors
from weightd.api.problems import TABLE, problem
from weightd.client import Client
from weightd.client.effects import Answer
from weightd.client.faults import Refused, SocketForbidden, Unreachable
from weightd.client.problems import error_of
from weightd.errors import HolderFigures, WeightdError


def samples() -> Iterator[WeightdError]:
    """One of each class that a daemon answers, with every figure set."""
    for kind in TABLE:
        if kind.__module__.startswith("weightd.errors"):
            yield made(kind)


def made(kind: type[WeightdError]) -> WeightdError:
    hints = typing.get_type_hints(kind)
    values = {one.name: sample(one.name, hints[one.name]) for one in dataclasses.fields(kind)}
    return kind(**values)


def sample(name: str, hint: Any) -> Any:
    """Something that a figure of that name and type may be."""
    if name == "holders":
        return (HolderFigures("replica:1", "org/m@v1", 9, 1767225600.25, None),)
    if name == "hint":
        return None
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[-1]
    by_type = {bool: True, int: 7, float: 2.5, str: f"the {name}"}
    return next(value for kind, value in by_type.items() if kind in (hint, *typing.get_args(hint)))


@pytest.mark.parametrize("error", list(samples()), ids=lambda error: type(error).__name__)
def test_an_error_comes_out_as_it_went_in(error: WeightdError) -> None:
    response = problem(error)
    headers = {name.decode(): value.decode() for name, value in response.raw_headers}
    again = error_of(Answer(response.status_code, headers, bytes(response.body)))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.figures() == error.figures()
    assert (again.code, again.retryable) == (error.code, error.retryable)
    assert again.retry_after == error.retry_after


def test_every_class_is_one_of_three_where_it_matters() -> None:
    assert issubclass(errors.TooLarge, ValueError)
    assert issubclass(errors.Blocked, MemoryError)
    assert issubclass(errors.NotResident, KeyError)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'"x"', b"\xff", b'{"code": 5}', b'{"code": "newer"}']
)
def test_what_is_no_problem_of_ours_is_told_all_the_same(body: bytes) -> None:
    error = error_of(Answer(502, {}, body))
    assert isinstance(error, Refused)
    assert str(error)


def test_a_problem_that_lacks_figures_is_told_by_its_words() -> None:
    error = error_of(Answer(413, {}, b'{"code": "too-large", "detail": "Too large.", "bytes": 1}'))
    assert isinstance(error, Refused)
    assert (error.code, str(error), error.retryable) == ("too-large", "Too large.", False)


# -- Driven against a daemon ----------------------------------------------------------


def test_a_key_that_is_none_is_told_by_its_part(client: Client) -> None:
    with pytest.raises(errors.InvalidKey, match=r"segment '\.\.'"):
        client.get("org/../m")
    with pytest.raises(errors.InvalidRequest, match="holder"):
        client.pin("no holder", "org/m")
    for ttl in (0, math.nan, math.inf):
        with pytest.raises(errors.InvalidRequest, match="ttl"):
            client.pin("holder", "org/m", ttl=ttl)
    for wait in (-1, math.nan):
        with pytest.raises(errors.InvalidRequest, match="wait"):
            client.fetch("org/m", "file:///elsewhere", wait=wait)


def test_an_origin_that_fails_is_told_in_its_own_words(
    client: Client, key: str, daemon: Daemon
) -> None:
    nothing = daemon.root.parent / "origins" / "nothing"
    with pytest.raises(errors.OriginFailed) as failed:
        client.fetch(key, f"file://{nothing}")
    assert str(nothing) in failed.value.source
    with pytest.raises(errors.Forbidden):
        client.fetch(key, "file:///elsewhere")


@pytest.mark.parametrize("kind", TWINS)
def test_the_replicas_socket_forbids_what_is_not_theirs(
    daemon: Daemon, kind: str, key: str
) -> None:
    with twin(kind, daemon.root.parent / "replica.sock") as replica:
        with pytest.raises(errors.Forbidden) as refused:
            replica.put(key, b"x")
        assert str(daemon.socket) in refused.value.door
        assert replica.get(key) is None


@pytest.mark.parametrize("kind", TWINS)
def test_nobody_there_is_told_at_once_with_every_place(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with twin(kind, tmp_path / "no.sock") as client, pytest.raises(Unreachable) as nobody:
        client.status()
    assert isinstance(nobody.value, ConnectionError)
    assert str(tmp_path / "no.sock") in str(nobody.value)
    monkeypatch.setenv("WEIGHTD_SOCKET", str(tmp_path / "told.sock"))
    with twin(kind) as client, pytest.raises(Unreachable, match=r"told\.sock"):
        client.status()


@pytest.mark.parametrize("kind", TWINS)
def test_a_peer_that_is_no_daemon_is_told(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "file.sock"
    place.write_text("no socket")
    with twin(kind, place) as client, pytest.raises(Unreachable):
        client.status()


@pytest.mark.needs("root")
def test_a_socket_that_may_not_be_opened_is_told_with_its_group() -> None:
    program = (
        "import asyncio, concurrent.futures.thread, grp, os, sys\n"
        "import weightd.client.records\n"
        "from weightd.client import AsyncClient, Client\n"
        "from weightd.client.faults import SocketForbidden\n"
        "blocking, awaiting = Client(sys.argv[1]), AsyncClient(sys.argv[1])\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for ask in (blocking.status, lambda: asyncio.run(awaiting.status())):\n"
        "    try:\n"
        "        ask()\n"
        "    except SocketForbidden as error:\n"
        "        print(isinstance(error, PermissionError), error)\n"
    )
    with TemporaryDirectory() as name:
        # pytest keeps its own directories to itself, and it is the socket that must refuse.
        os.chmod(name, 0o755)
        with running(Path(name, "cache"), capacity=CAPACITY) as daemon:
            command = [sys.executable, "-c", program, str(daemon.socket)]
            tree = Path(weightd.__file__).parents[1]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
            replica = Path(daemon.socket).with_name("replica.sock")
            replica.touch()
            replica.chmod(0o666)
            beside = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
    told = f"True This user may not open {daemon.socket} (Permission denied)"
    assert [line.startswith(told) for line in ran.stdout.splitlines()] == [True, True], ran.stderr
    assert "--replica-socket" in ran.stdout
    assert f"WEIGHTD_SOCKET={replica}" in beside.stdout
    assert SocketForbidden.retryable is False
