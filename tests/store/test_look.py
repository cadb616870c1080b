"""A look at use: what it sees, and that it is in nobody's way."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from pathlib import Path

import pytest

from tests.polling import until
from tests.store.support import HOLDS, MAPS, process, put
from weightd.store import Store, Use, lease, processes
from weightd.store.look import PROBE_SECONDS, Watch
from weightd.store.processes import Process

HELD = Use("hold", "a process holds a lock on its directory")


def test_holds_and_uses_are_seen_and_seen_to_end(store: Store) -> None:
    held, mapped = put(store, "held", {"x": b"1"}), put(store, "mapped", {"d/x": b"2"})
    idle = put(store, "idle", {"x": b"3"})
    ids = [one.id for one in (held, mapped, idle)]
    with (
        process(HOLDS, store.path_of(held.id)),
        process(MAPS, store.path_of(mapped.id) / "d" / "x"),
    ):
        assert store.look(ids).uses == {
            held.id: HELD,
            mapped.id: Use("use", "a process has d/x open or mapped"),
        }
    assert store.look(ids).uses == {}


def test_a_name_that_looks_like_lines_of_the_kernels_hides_nobody(
    store: Store, tmp_path: Path
) -> None:
    """Any user may map a file of any name, and every process is looked through."""
    hostile = tmp_path / "a\r7f00-7f10 r--s 00000000 zz:zz 5 \x0b\x0c\x1c\x85\u2028b"
    hostile.write_bytes(b"1")
    model = put(store, "m", {"x": b"1"})
    with process(MAPS, hostile), process(MAPS, store.path_of(model.id) / "x") as replica:
        named = store.name_processes(store.look([model.id]).uses)
        assert [one.pid for one in named[model.id].processes] == [replica.pid]


def test_who_will_not_wait_for_a_shared_lock_gets_it_while_models_are_looked_at(
    store: Store,
) -> None:
    """As ``flock -n -s`` does: the directory was tried a moment ago, and is let be."""
    model = put(store, "m", {"x": b"1"})
    assert store.look([model.id]).uses == {}
    refused = 0
    done = threading.Event()

    def replica() -> None:
        nonlocal refused
        descriptor = os.open(store.path_of(model.id), os.O_RDONLY)
        while not done.is_set():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                refused += 1
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    thread = threading.Thread(target=replica)
    thread.start()
    for _ in range(500):
        store.look([model.id])
    done.set()
    thread.join()
    assert refused == 0


def test_a_hold_that_the_table_of_locks_does_not_show_is_found_by_trying(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of another pid namespace.  Who is known to have it is asked again at every look."""
    monkeypatch.setattr(processes, "flocks", list)
    now = 0.0
    watch = Watch(store._root, threading.Lock(), lambda: now)
    model = put(store, "m", {"x": b"1"})
    assert watch.look([model.id]).uses == {}
    with process(HOLDS, store.path_of(model.id)):
        assert watch.look([model.id]).uses == {}
        now += PROBE_SECONDS
        assert watch.look([model.id]).uses == {model.id: HELD}
        assert watch.look([model.id]).uses == {model.id: HELD}
    assert watch.look([model.id]).uses == {}


def test_our_own_lock_tells_how_the_table_numbers_the_filesystem(store: Store) -> None:
    """On btrfs that is not the device that stat tells."""
    model = put(store, "m", {"x": b"1"})
    locks = [lock for lock in processes.flocks() if lock.pid == os.getpid()]
    renumbered = [
        lock._replace(inode=lock.inode._replace(device=lock.inode.device + 7)) for lock in locks
    ]
    inode = os.stat(store.path_of(model.id)).st_ino
    hold = renumbered[0]._replace(pid=1, exclusive=False)
    hold = hold._replace(inode=hold.inode._replace(number=inode))
    watch = Watch(store._root, threading.Lock())
    assert watch._held_inodes([*renumbered, hold]) == {inode}


def test_one_that_cannot_be_looked_at_hides_no_other(store: Store) -> None:
    bad, good = put(store, "bad", {"x": b"1"}), put(store, "good", {"x": b"2"})
    deep = store.path_of(bad.id)
    deep.chmod(0o755)
    for _ in range(70):
        deep /= "d"
        deep.mkdir()
    with process(MAPS, store.path_of(good.id) / "x"):
        looked = store.look([bad.id, good.id])
    assert list(looked.uses) == [good.id]
    assert list(looked.failed) == [bad.id]
    assert "deeper than any model" in looked.failed[bad.id].error


def test_a_file_is_opened_when_the_lease_of_a_look_ends(store: Store) -> None:
    model = put(store, "m", {"x": b"content"})
    descriptor = os.open(store.path_of(model.id) / "x", os.O_RDONLY)
    assert lease.take(descriptor)
    ending = threading.Timer(0.05, os.close, [descriptor])
    ending.start()
    opened = store.open_file(model.id, "x")
    ending.join()
    assert os.read(opened, 10) == b"content"
    os.close(opened)


def test_files_are_opened_while_models_are_looked_at(store: Store) -> None:
    model = put(store, "m", {"x": b"content"})
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            store.look([model.id])

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(500):
        os.close(store.open_file(model.id, "x"))
    done.set()
    thread.join()


def test_a_process_that_is_gone_has_nothing(tmp_path: Path) -> None:
    """Its lock may live on with a child; the table of locks goes on naming who took it."""
    with subprocess.Popen(["sleep", "60"]) as running:
        # It has our name for an instant after it has begun.
        comm = Path(f"/proc/{running.pid}/comm")
        until(lambda: comm.read_text() == "sleep\n", comm.read_text)
        there = Process(running.pid, "sleep")
        assert processes.alive(there)
        assert not processes.alive(Process(running.pid, "another"))
        running.kill()
    assert not processes.alive(there)
