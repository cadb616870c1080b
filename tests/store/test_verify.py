"""Reading a published model to the last byte: what is found, and in whose way it is."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.store.damages import flip_byte
from tests.store.support import put
from weightd.model import Manifest
from weightd.store import Damage, Flaw, Reading, Store, Verified, pages, verify

STEP_BYTES = 64 << 10
"""Less than in service, so that small files have many steps."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

SIZES = [0, 1, 4095, 4096, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 2 * STEP_BYTES + 777]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "STEP_BYTES", STEP_BYTES)


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, root: Path) -> Iterator[Store]:
    """Where reads may pass the page cache, and where there is nothing else."""
    with (
        tempfile.TemporaryDirectory(prefix="weightd-", dir=MEMORY) as place,
        Store.open(root if request.param == "disk" else Path(place) / "root") as opened,
    ):
        yield opened


def content(size: int) -> bytes:
    return bytes(at * at % 251 for at in range(997)) * (size // 997 + 1)


@pytest.fixture
def model(store: Store) -> Manifest:
    files = {f"d/{size}": content(size)[:size] for size in SIZES}
    return put(store, "org/m", {**files, "config.json": b"{}"})


def place(store: Store, model: Manifest) -> Path:
    path = store.path_of(model.id)
    for one in (path, path / "d", path.parent):
        one.chmod(0o755)
    return path


def read(store: Store, model: Manifest) -> tuple[Flaw, ...]:
    reading = Reading()
    verified = store.verify(model, reading)
    assert verified is not None
    assert not verified.vanished
    if not (verified.flaws and verified.flaws[0].path is None):
        assert reading.done == model.bytes
    return verified.flaws


def test_an_untouched_model_is_whole(store: Store, model: Manifest) -> None:
    assert read(store, model) == ()


@pytest.mark.parametrize(
    "at", [0, STEP_BYTES - 1, STEP_BYTES, 2 * STEP_BYTES, 2 * STEP_BYTES + 776]
)
def test_a_changed_byte_is_found_that_no_look_shows(store: Store, model: Manifest, at: int) -> None:
    name = f"d/{SIZES[-1]}"
    file = place(store, model) / name
    flip_byte(file, at)
    assert not isinstance(store.check(model), Damage)
    (flaw,) = read(store, model)
    assert (flaw.path, flaw.problem, flaw.inode) == (name, "digest-mismatch", file.stat().st_ino)
    (entry,) = (one for one in model.files if one.path == name)
    assert flaw.expected == entry.sha256
    assert flaw.actual not in (None, entry.sha256)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def remove(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (truncate, "changed"),
        (grow, "changed"),
        (touch, "changed"),
        (remove, "missing"),
        (link, "changed"),
        (a_directory, "changed"),
        (a_pipe, "changed"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_a_look_shows_is_found_as_well(
    store: Store, model: Manifest, harm: Callable[[Path], None], problem: str
) -> None:
    file = place(store, model) / "d/4096"
    file.chmod(0o644)
    harm(file)
    (flaw,) = read(store, model)
    assert (flaw.path, flaw.problem) == ("d/4096", problem)
    assert flaw.reason.startswith("d/4096 ")
    assert (flaw.actual == flaw.expected) == (harm is touch), "one that was read says of what"


def test_every_damaged_file_is_named(store: Store, model: Manifest) -> None:
    path = place(store, model)
    flip_byte(path / "config.json")
    remove(path / "d/1")
    flip_byte(path / f"d/{STEP_BYTES}", 5)
    assert {(flaw.path, flaw.problem) for flaw in read(store, model)} == {
        ("config.json", "digest-mismatch"),
        ("d/1", "missing"),
        (f"d/{STEP_BYTES}", "digest-mismatch"),
    }


def test_a_copied_root_is_whole(store: Store, model: Manifest, tmp_path: Path) -> None:
    """On other inodes the times of writing say nothing; the bytes do."""
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy, copy_function=shutil.copyfile)
    with Store.open(copy) as other:
        assert read(other, model) == ()


def garble(path: Path) -> None:
    (path.parent / "manifest.json").write_text("{}")


def no_manifest(path: Path) -> None:
    (path.parent / "manifest.json").unlink()


@pytest.mark.parametrize("harm", [garble, no_manifest])
def test_a_manifest_that_is_another_is_damage(
    store: Store, model: Manifest, harm: Callable[[Path], None]
) -> None:
    path = place(store, model)
    (path.parent / "manifest.json").chmod(0o644)
    harm(path)
    (flaw,) = read(store, model)
    assert (flaw.path, flaw.problem) == (None, "changed")
    assert "manifest.json" in flaw.reason


def test_a_mark_of_damage_outlives_the_daemon(store: Store, model: Manifest) -> None:
    for _ in range(2):
        store.mark_damaged(model.id, "d/1 is not what was published")
    assert store.check(model) == Damage("d/1 is not what was published")
    assert read(store, model) == (Flaw(None, "changed", "d/1 is not what was published"),)
    for doomed in store.doom([model.id]):
        store.unlink(doomed, lambda size: None)
    store.mark_damaged(model.id, "late")


class Steps:
    """The lock of looks and seizures, which does something before a step."""

    def __init__(self, acts: dict[int, Callable[[], object]]) -> None:
        self._acts = acts
        self._lock = threading.Lock()
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        self._acts.get(self.taken, int)()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


def stepwise(store: Store, model: Manifest, reading: Reading, steps: Any) -> Verified | None:
    return verify.verify(store._root, model, steps, reading)


STEPS = 12
"""A step for each file, one more for what is longer than a step, and two."""


@pytest.mark.parametrize("step", [1, 2, 10, STEPS, STEPS + 1])
def test_it_is_in_no_evictions_way_at_any_step(store: Store, model: Manifest, step: int) -> None:
    """A file is open for one step only, so that nobody is seen to use the model."""
    steps = Steps({step: lambda: store.doom([model.id])})
    verified = stepwise(store, model, Reading(), steps)
    assert verified == Verified((), vanished=step <= steps.taken)
    assert (step <= steps.taken) == (step <= STEPS)


@pytest.mark.parametrize("step", [1, 10, STEPS])
def test_it_ends_at_the_next_step(store: Store, model: Manifest, step: int) -> None:
    reading = Reading()

    def stop() -> None:
        reading.stopping = True

    steps = Steps({step: stop})
    assert (stepwise(store, model, reading, steps) is None) == (step < STEPS)
    assert steps.taken == step


def test_it_is_no_use_to_a_look(store: Store, model: Manifest) -> None:
    seen = []
    steps = Steps(dict.fromkeys((1, 5, 9), lambda: seen.append(store.look([model.id]).uses)))
    assert stepwise(store, model, Reading(), steps) == Verified(())
    assert seen == [{}, {}, {}]


def test_the_pages_of_those_who_use_a_model_stay_as_they_are(root: Path) -> None:
    with Store.open(root) as store:
        model = put(store, "org/m", {"w": content(STEP_BYTES)[:STEP_BYTES]})
        with (store.path_of(model.id) / "w").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not offers_direct_reads(file.fileno()) or in_memory(file.fileno()):
                pytest.skip("cannot be had here, this filesystem reads by the page cache only")
            assert read(store, model) == ()
            assert not in_memory(file.fileno())


def offers_direct_reads(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDONLY)
    return True


def in_memory(descriptor: int) -> bool:
    """Whether any page of the file is."""
    return pages.cached(descriptor, 0, os.fstat(descriptor).st_size) > 0


def short(count: int) -> int:
    """The first read brings less than it could."""
    return count - 100


def refused(_: int) -> int:
    """As where a filesystem passes the cache for some files only."""
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("answer", [short, refused])
def test_how_one_file_is_read_says_nothing_of_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], int]
) -> None:
    preadv, calls = os.preadv, 0

    def answered(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal calls
        count = preadv(descriptor, buffers, offset)
        calls += 1
        return answer(count) if calls == 1 else count

    with Store.open(root) as store:
        size = 3 * STEP_BYTES
        model = put(store, "org/m", {"a": content(size)[:size], "b": content(size)[:size]})
        with (store.path_of(model.id) / "b").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not offers_direct_reads(file.fileno()) or in_memory(file.fileno()):
                pytest.skip("cannot be had here, this filesystem reads by the page cache only")
            monkeypatch.setattr(os, "preadv", answered)
            assert read(store, model) == ()
            assert not in_memory(file.fileno())
