"""Holds and leases: what keeps a model, what is told when it no longer does."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weightd
from tests.client.conftest import CAPACITY
from tests.client.twins import TWINS, twin
from tests.polling import until
from tests.system.daemon import Daemon, running
from weightd.client import Client
from weightd.client.faults import HoldRefused, HoldUnseen, LeaseLost, NotTheSameDirectory
from weightd.client.holders import own_holder
from weightd.errors import InUse, NotResident, OriginFailed
from weightd.model import parse_holder


def pins_of(client: Client, key: str, kind: str = "pin") -> list[str]:
    return [one.holder or "" for one in client.pins() if one.key == key and one.kind == kind]


def is_locked(path: str) -> bool:
    """Whether somebody else has the directory locked."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_hold_is_a_lease_and_a_lock(client: Client, key: str) -> None:
    model = client.put(key, b"x")
    with client.hold(key, holder="replica:1") as hold:
        assert (hold.path, hold.holder) == (model.path, "replica:1")
        assert is_locked(hold.path)
        assert pins_of(client, key) == ["replica:1"]
        assert pins_of(client, key, "hold") == [""]
    assert not is_locked(model.path)
    assert pins_of(client, key) == []


def test_a_hold_fetches_what_is_not_here(client: Client, key: str, daemon: Daemon) -> None:
    origin = daemon.root.parent / "origins" / key.rpartition("/")[2]
    origin.mkdir()
    (origin / "weights").write_bytes(b"weights")
    before = client.status()
    with client.hold(key, f"file://{origin}") as hold:
        assert Path(hold.path, "weights").read_bytes() == b"weights"
        assert pins_of(client, key) == [hold.holder]
    after = client.status()
    # One wish is one lookup.
    assert (after.hits + after.misses) - (before.hits + before.misses) == 1


def test_what_is_taken_is_the_kernels_alone(client: Client, key: str) -> None:
    client.put(key, b"x")
    hold = client.take_hold(key)
    try:
        assert pins_of(client, key) == []
        assert is_locked(hold.path)
        with pytest.raises(InUse):
            client.delete(key)
    finally:
        os.close(hold.descriptor)
    # The daemon looks again when it is asked to, and it can go.
    client.delete(key)


def test_a_failure_leaves_neither_lock_nor_lease(
    client: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotResident), client.hold(key):
        pass
    model = client.put(key, b"x")
    monkeypatch.setattr("weightd.client.holding.LOCK_SECONDS", 0.1)
    descriptor = os.open(model.path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(HoldRefused, match="lslocks"), client.hold(key):
            pass
    finally:
        os.close(descriptor)
    assert pins_of(client, key) == []


def test_a_hold_that_the_daemon_does_not_see_is_told(
    client: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would be where another kernel keeps the locks: here nothing is locked at all."""
    model = client.put(key, b"x")
    monkeypatch.setattr("weightd.client.holding.SEEN_SECONDS", 0.1)
    monkeypatch.setattr("weightd.client.holding._lock", lambda descriptor: True)
    with pytest.raises(HoldUnseen) as unseen, client.hold(key):
        pass
    assert unseen.value.path == model.path
    assert pins_of(client, key) == []


@pytest.mark.needs("unshare", "root")
def test_a_hold_is_seen_where_the_table_of_locks_does_not_show_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon in a container sees no lock of a process outside of its pid namespace."""
    contained = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    with running(root, capacity=CAPACITY, prefix=contained) as daemon:
        client = Client(daemon.socket)
        client.put("m", b"x")
        # It has tried the lock, and would not again for a minute.
        until(lambda: daemon.client.get("/v1/pins")["swept_at"])
        monkeypatch.setattr("weightd.client.holding.SEEN_SECONDS", 20)
        with client, client.hold("m"):
            [hold] = [one for one in client.pins() if one.kind == "hold"]
            assert (hold.key, hold.pid) == ("m", None)


@pytest.mark.parametrize("kind", TWINS)
def test_the_replicas_socket_sees_a_hold_too(daemon: Daemon, kind: str, key: str) -> None:
    daemon.client.call("PUT", f"/v1/models/{key}", b"x")
    with twin(kind, daemon.root.parent / "replica.sock") as replica, replica.hold(key) as hold:
        assert is_locked(hold.path)


def test_the_body_of_a_hold_is_not_hidden(client: Client, key: str) -> None:
    model = client.put(key, b"x")
    with pytest.raises(ZeroDivisionError), client.hold(key):
        raise ZeroDivisionError
    assert not is_locked(model.path)
    assert pins_of(client, key) == []


# -- Leases ---------------------------------------------------------------------------


def test_a_lease_is_renewed_for_as_long_as_it_is_needed(client: Client, key: str) -> None:
    client.put(key, b"x")
    with client.lease(key, holder="replica:2", ttl=0.6) as pinned:
        assert pinned.holder == "replica:2"

        def renewals() -> int:
            mine = [one for one in client.pins() if one.key == key]
            assert len(mine) == 1, "it lapsed"
            return int(((mine[0].until or 0) - (pinned.until or 0)) > 1.2)

        # It stands for longer than its length twice over.
        until(renewals)
    assert pins_of(client, key) == []


def test_a_lease_that_is_lost_is_told_when_it_happens_and_at_the_end(
    client: Client, key: str
) -> None:
    client.put(key, b"x")
    told = threading.Event()
    lost: list[LeaseLost] = []

    def hear(error: LeaseLost) -> None:
        lost.append(error)
        told.set()

    def lose() -> None:
        with client.lease(key, holder="replica:3", ttl=0.6, on_lost=hear):
            client.unpin("replica:3", key)
            client.delete(key)
            assert told.wait(60)

    with pytest.raises(LeaseLost) as raised:
        lose()
    assert lost == [raised.value]
    assert (raised.value.holder, raised.value.key) == ("replica:3", key)


@pytest.mark.parametrize("kind", ["blocking"])
def test_a_lease_is_lost_with_the_daemon_and_a_hold_is_not(root: Path, kind: str) -> None:
    told = threading.Event()

    def lease(client: Client, first: Daemon) -> None:
        with client.lease("m", holder="leased", ttl=0.6, on_lost=lambda _: told.set()):
            first.kill()
            assert told.wait(60)

    with (
        running(root, capacity=CAPACITY) as first,
        twin(kind, first.socket, patience=0.1) as client,
    ):
        client.put("m", b"x")
        with client.hold("m", holder="held", ttl=0.6) as hold:
            with pytest.raises(LeaseLost):
                lease(client, first)
            assert is_locked(hold.path)
            with running(root, capacity=CAPACITY):
                # The lease beside the hold comes back as soon as the daemon does.
                until(lambda: "held" in pins_of(client, "m"))
                assert is_locked(hold.path)


def test_a_child_leaves_the_lease_of_its_parent(daemon: Daemon, key: str) -> None:
    """One that was forked within the context, and leaves that by an exception."""
    code = """
import os, sys
from weightd.client import Client
with Client(sys.argv[1]) as client:
    client.put(sys.argv[2], b"x")
    with client.lease(sys.argv[2], holder="forked"):
        child = os.fork()
        if not child:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print([one.holder for one in client.pins() if one.key == sys.argv[2]])
    print([one.holder for one in client.pins() if one.key == sys.argv[2]])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, daemon.socket, key],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(weightd.__file__).parents[1],
    )
    assert ran.stdout.splitlines() == ["7", "['forked']", "[]"], ran.stderr


# -- Another mount ---------------------------------------------------------------------


@contextmanager
def mounted(root: Path, place: Path) -> Iterator[Path]:
    """The root at another place, as a container has it."""
    place.mkdir()
    subprocess.run(["mount", "--bind", root, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.needs("mount", "root")
@pytest.mark.parametrize("kind", TWINS)
def test_another_mount_of_the_root_is_found(
    daemon: Daemon, kind: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(daemon.root, tmp_path / "mnt") as mount:
        monkeypatch.setenv("WEIGHTD_ROOT", str(mount))
        with twin(kind, daemon.socket) as client:
            model = client.put(key, b"weights", file="model.gguf")
            assert model.path == str(mount / model.relative_path)
            assert Path(model.file or "").read_bytes() == b"weights"
            assert client.path(key) == model.path
            [listed] = [one for one in client.models() if one.key == key]
            assert listed.path == model.path
            with client.hold(key) as hold:
                assert is_locked(f"{daemon.root}/{hold.model.relative_path}")


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("what", ["nothing", "a copy"])
def test_what_is_not_the_same_directory_is_told_with_what_to_mount(
    daemon: Daemon, kind: str, key: str, tmp_path: Path, what: str
) -> None:
    daemon.client.call("PUT", f"/v1/models/{key}", b"x")
    other = tmp_path / "other"
    if what == "a copy":
        shutil.copytree(daemon.root / "models", other / "models")
    with twin(kind, daemon.socket, root=other) as client:
        with pytest.raises(NotTheSameDirectory) as mismatch:
            client.get(key)
        assert mismatch.value.root == str(daemon.root)
        assert f"Mount the daemon's {daemon.root}" in str(mismatch.value)
        with pytest.raises(NotTheSameDirectory), client.hold(key):
            pass
        with pytest.raises(NotTheSameDirectory):
            client.pin("replica", key)
        assert pins_of(client, key) == []


# -- Names ------------------------------------------------------------------------------


def names(*prefix: str, **variables: str) -> str:
    ran = subprocess.run(
        [
            *prefix,
            sys.executable,
            "-c",
            "from weightd.client.holders import own_holder; print(own_holder())",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(weightd.__file__).parents[1],
        env={"PATH": os.environ["PATH"]} | variables,
    )
    return parse_holder(ran.stdout.strip())


def test_every_hold_has_a_name_of_its_own(client: Client, key: str) -> None:
    # The parts before the last tell processes apart, and that one the holds of one process.
    assert len({name.rpartition(".")[0] for name in (own_holder(), names(), names())}) == 3
    assert own_holder() != own_holder()
    client.put(key, b"x")
    with client.lease(key) as kept:
        with client.lease(key) as other:
            assert kept.holder != other.holder
        assert pins_of(client, key) == [kept.holder]


def test_a_pod_is_in_its_replicas_names() -> None:
    pod = "0b0f3b8e-5b8e-4c55-9e0a-0d1d6b1a8f57"
    first, second = (names(POD_UID=pod) for _ in range(2))
    assert first.startswith(pod)
    assert first != second
    assert names(WEIGHTD_HOLDER="mine") == "mine"


@pytest.mark.needs("unshare", "root")
def test_the_first_processes_of_two_containers_differ() -> None:
    contained = ("unshare", "--pid", "--fork", "--mount-proc")
    first, second = names(*contained), names(*contained)
    assert re.search(r"\.1\.", first)
    assert re.search(r"\.1\.", second)
    assert first != second


def test_a_fetch_that_fails_leaves_nothing_held(client: Client, key: str, daemon: Daemon) -> None:
    nothing = f"file://{daemon.root.parent}/origins/nothing-for-a-hold"
    with pytest.raises(OriginFailed), client.hold(key, nothing):
        pass
    assert pins_of(client, key) == []
