"""Disks that fill and disks that fail: real ones, or failed by the kernel's tracer."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.support import Claims, Zeros, manifest_of, names_in, process, put, tree_of
from weightd.errors import StateUnwritable
from weightd.model import GenerationId, Key, Pin
from weightd.store import HistoryDatabase, NoSpace, PinChange, PinDatabase, Recency, Store

ID = GenerationId(Key("m"), "0" * 64)


def fill(place: Path) -> Path:
    """Leave no block free on the filesystem of ``place``; the file that fills it."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


@pytest.mark.needs("root", "mount")
def test_a_full_disk_is_told_apart_and_leaves_nothing(small_filesystem: Path) -> None:
    with Store.open(small_filesystem / "root") as store:
        model = put(store, "m", {"w": Zeros(1 << 20)})
        before = store.filesystem().free
        with pytest.raises(NoSpace, match="No space left") as full, store.begin(Key("n")) as ingest:
            ingest.receive_file("w", Zeros(20 << 20), claim=Claims(), length=None, sha256=None)
        assert full.value.call == "write to w"
        assert ingest.remains is None
        assert store.filesystem().free == before
        assert names_in(store, "models") == [f"m.{model.digest[:16]}"]


@pytest.mark.needs("root", "mount")
def test_a_publication_on_a_full_disk_is_not_seen(small_filesystem: Path) -> None:
    with Store.open(small_filesystem / "root") as store:
        with store.begin(Key("n")) as ingest:
            entry = ingest.receive_file("w", Zeros(9), claim=Claims(), length=9, sha256=None)
            fill(small_filesystem)
            with pytest.raises(NoSpace):
                store.publish(ingest, manifest_of(Key("n"), [entry]))
        assert names_in(store, "models") == names_in(store, "incoming") == []


@pytest.mark.parametrize("failing", ["publish.manifest-flushed", "publish.renamed"])
def test_a_publication_that_failed_can_be_tried_again(root: Path, failing: str) -> None:
    """Also when it had come as far as its manifest."""
    left = [OSError(errno.ENOSPC, "No space left on device")]

    def reach(point: str) -> None:
        if point == failing and left:
            raise left.pop()

    with Store.open(root, reach=reach) as store, store.begin(Key("n")) as ingest:
        entry = ingest.receive_file("w", Zeros(9), claim=Claims(), length=9, sha256=None)
        manifest = manifest_of(Key("n"), [entry])
        with pytest.raises(NoSpace):
            store.publish(ingest, manifest)
        assert names_in(store, "models") == []
        path, _ = store.publish(ingest, manifest)
        assert (path / "w").read_bytes() == bytes(9)


@pytest.mark.needs("root", "mount")
def test_a_root_on_a_full_disk_is_taken_and_can_evict(small_filesystem: Path) -> None:
    root = small_filesystem / "root"
    with Store.open(root) as store:
        model = put(store, "m", {"w": Zeros(1 << 20)})
    fill(small_filesystem)
    with Store.open(root) as store:
        assert store.leases_work
        assert [found.manifest for found in store.scan().models] == [model]
        freed = Claims()
        for doomed in store.doom([model.id]):
            assert store.unlink(doomed, freed) == 0
        assert freed.total == 1 << 20
        put(store, "m", {"w": Zeros(1 << 20)})


@pytest.mark.needs("root", "mount")
def test_pins_are_taken_and_ended_on_a_full_disk(small_filesystem: Path) -> None:
    """The room was made at the start; unpinning is what lets an eviction free the disk."""
    pins = PinDatabase.open(small_filesystem / "state.db")
    fill(small_filesystem)
    for number in range(500):
        pins.apply([PinChange.put(Pin(f"holder-{number}", ID, 1.0), "boot")])
    for number in range(500):
        pins.apply([PinChange.remove(f"holder-{number}", ID)])
    assert pins.load() == []
    pins.close()


@pytest.mark.needs("root", "mount")
def test_pins_are_read_on_a_disk_that_was_full_already(small_filesystem: Path) -> None:
    path = small_filesystem / "state.db"
    pins = PinDatabase.open(path)
    pins.apply([PinChange.put(Pin("h", ID, 1.0), "boot")])
    pins.close()
    ballast = fill(small_filesystem)
    pins = PinDatabase.open(path, expected=True)
    assert [stored.pin.holder for stored in pins.load()] == ["h"]
    with pytest.raises(StateUnwritable):
        pins.apply([PinChange.put(Pin("i", ID, 1.0), "boot")])
    ballast.unlink()
    pins.apply([PinChange.put(Pin("i", ID, 1.0), "boot")])
    assert [stored.pin.holder for stored in pins.load()] == ["h", "i"]
    pins.close()


@pytest.mark.needs("root", "mount")
def test_history_on_a_full_disk_is_kept_in_memory(small_filesystem: Path) -> None:
    fill(small_filesystem)
    history = HistoryDatabase(small_filesystem / "history.db")
    assert history.lost is not None
    assert "in memory" in history.lost
    history.flush({ID: Recency(1, 2.0, 3)}, [], [])
    assert history.load() == {ID: Recency(1, 2.0, 3)}
    history.close()


PUBLISHES = """
import sys
from pathlib import Path
from tests.store.support import put
from weightd.errors import IoError
from weightd.store import Store
with Store.open(Path(sys.argv[1])) as store:
    try:
        put(store, 'm', {'x': b'1'})
    except IoError as error:
        print(error.detail)
"""


@pytest.mark.needs("strace")
@pytest.mark.parametrize("directory", ["models", "incoming"])
def test_a_publication_that_cannot_be_flushed_is_taken_back(root: Path, directory: str) -> None:
    with Store.open(root) as store:
        kept = put(store, "kept", {"x": b"1"})
    command = ["strace", "-f", "-o", "/dev/null", "-P", str(root / directory)]
    command += ["-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]
    command += [sys.executable, "-c", PUBLISHES, str(root)]
    cwd = Path(__file__).parents[2]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    if "Operation not permitted" in ran.stderr:
        pytest.skip("cannot be had here, tracing is not allowed")
    assert "Input/output error" in ran.stdout, ran.stderr
    with Store.open(root) as store:
        report = store.scan()
        assert [found.manifest for found in report.models] == [kept]
        assert report.debris == []
        assert tree_of(store.path_of(kept.id)) == {"x": b"1"}


PINS = """
import sys
from pathlib import Path
from weightd.model import GenerationId, Key, Pin
from weightd.errors import StateUnwritable
from weightd.store import PinChange, PinDatabase
pins = PinDatabase.open(Path(sys.argv[1]) / 'state.db')
print('ready', flush=True)
sys.stdin.readline()
try:
    pins.apply([PinChange.put(Pin('h', GenerationId(Key('m'), '0' * 64), 1.0), 'boot')])
except StateUnwritable as error:
    print(type(error).__name__, pins.load())
pins.close()
"""


@pytest.mark.needs("strace")
def test_a_pin_that_cannot_be_flushed_is_not_taken(root: Path) -> None:
    root.mkdir()
    with process(PINS, root) as pinning:
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-p", str(pinning.pid)]
        command += ["-e", "inject=fsync,fdatasync:error=EIO"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            answer = tracer.stderr.readline()
            if "not permitted" in answer:
                pytest.skip("cannot be had here, tracing is not allowed")
            assert "attached" in answer
            output, _ = pinning.communicate("\n")
    assert output == "StateUnwritable []\n"


LIVES = """
import os, sys
from pathlib import Path
from tests.store.support import Claims, Zeros, put, tree_of, unlink_all
from weightd.errors import RootUnusable
from weightd.store import Store
from weightd.store.unlink import SLICE
# After the imports: the interpreter may be where only root may read.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
root = Path(sys.argv[1])
with Store.open(root) as store:
    assert store.leases_work
    model = put(store, 'org/m', {'a/b/w': Zeros(SLICE + 1), 'x': b'1'})
    assert [found.manifest for found in store.scan().models] == [model]
    assert isinstance(store.check(model), tuple)
    store.mark_superseded(model.id); store.restore(model)
    assert unlink_all(store, [model.id]) == SLICE + 2 * store.block
    with store.begin(model.key) as ingest:
        ingest.receive_file('d/x', Zeros(5), claim=Claims(), length=5, sha256=None)
    assert not os.listdir(root / 'doomed') + os.listdir(root / 'incoming')
for place in sys.argv[2:]:
    try:
        Store.open(Path(place))
    except RootUnusable as error:
        print(error)
"""


@pytest.mark.needs("root")
def test_an_ordinary_user_can_do_it_all(open_path: Path) -> None:
    """Read-only directories, leases and truncation without root's powers; and a root not theirs."""
    theirs, others, taken = open_path / "theirs", open_path / "others", open_path / "taken"
    for place in (theirs, others):
        place.mkdir()
    theirs.chmod(0o777)
    Store.open(taken).close()
    cwd = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", LIVES, str(theirs / "root"), str(others), str(taken)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 2
    for line, place in zip(lines, (others, taken), strict=True):
        assert line.startswith(f"{place} cannot be used as root: Permission denied")
        assert "give this user write access" in line
