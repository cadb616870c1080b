"""Files of another user's taken over by copies, on each kind of filesystem and step by step broken.

The store is used by one user, the files are another's; a third process, which
stays root, makes them his.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.filesystems.disks import KINDS, MB, mounted

SHARING: Final = frozenset({"btrfs", "xfs"})
SIZE: Final = 17 * MB + 1234
"""More than is copied in one step."""

TAKES_OVER: Final = """
import json, os, socket, sys
from pathlib import Path
from tests.filesystems.disks import available
from tests.polling import until
from tests.store.support import begun, du
from weightd.errors import IoError
from weightd.model import Key
from weightd.store import Announced, CopyNeeded, NoSpace, Store
root, size = Path(sys.argv[1]), int(sys.argv[2])
US, HIM = 65533, 65534
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    with theirs.makefile('rw') as asked:
        for line in asked:
            code, names = json.loads(line)
            exec(code, globals() | names)
            asked.write('done\\n')
            asked.flush()
    os._exit(0)
theirs.close()
asking = ours.makefile('rw')
def by_root(code, **names):
    asking.write(json.dumps([code, names]) + '\\n')
    asking.flush()
    assert asking.readline() == 'done\\n'
# After the imports: the interpreter may be where only root may read.
os.setgroups([]); os.setgid(US); os.setuid(US)

HIS = '''
path = Path(path)
path.unlink(missing_ok=True)
path.write_bytes(os.urandom(length))
os.chown(path, HIM, HIM)
'''
MAY_WRITE = '''
os.seteuid(HIM)
for path in paths:
    os.close(os.open(path, os.O_RDWR))
    Path(path + '.new').touch()
    os.unlink(path + '.new')
os.seteuid(0)
'''
BALLAST = '''
with open(path, 'wb', buffering=0) as file:
    try:
        while True:
            file.write(bytes(65536))
    except OSError:
        pass
'''
told = {'failed': [], 'off': 0}
fails = None
def reach(name):
    global fails
    if fails and name == fails[0]:
        fails[1] -= 1
        if fails[1] == 0:
            fails = None
            raise OSError(5, 'Input/output error')
with Store.open(root, reach=reach) as store:
    files = [Announced('x', size), Announced('a/y', 5000)]
    ingest = begun(store, Key('m'))
    place = ingest.open_to(HIM, HIM, files)
    paths = [str(place / file.path) for file in files]
    def fill():
        global books
        for path, file in zip(paths, files):
            by_root(HIS, path=path, length=file.bytes)
        # Some filesystems show what a file holds a moment after it was written.
        until(lambda: ingest.measure() >= size)
        books = ingest.measure()
    def wrote(count):
        global books
        books += count
        # The tree of a file's extents may take blocks beside those of its bytes.
        told['off'] = max(told['off'], abs(du(root / 'incoming') - books))
    def take_over():
        return ingest.take_over(files, trusted=trusted, room=room, wrote=wrote)
    def is_as_it_was():
        by_root(MAY_WRITE, paths=paths)
        assert not ingest.written
        until(lambda: ingest.measure() == books, lambda: (ingest.measure(), books))
    trusted = False
    room = size // store.block * store.block + store.block
    fill()
    try:
        ingest.take_over(files, trusted=False)
    except CopyNeeded as needed:
        assert needed.bytes == room
    assert [os.stat(path).st_uid for path in paths] == [HIM, HIM]
    is_as_it_was()
    if len(sys.argv) > 3:
        by_root(BALLAST, path=sys.argv[3])
        try:
            take_over()
        except NoSpace as full:
            told['full'] = str(full)
        by_root('os.unlink(path)', path=sys.argv[3])
        assert [os.stat(path).st_uid for path in paths] == [HIM, HIM]
        is_as_it_was()
    for step, nth in (('taken-over', 1), ('copied', 1), ('copied', 2), ('sealed', 1)):
        fails = ['ingest.' + step, nth]
        fill()
        told['failed'].append(fails[0])
        try:
            take_over()
        except IoError as error:
            told['failed'][-1] += ': ' + error.error
        is_as_it_was()
    fill()
    content = [Path(path).read_bytes() for path in paths]
    by_root('os.sync()')
    before = available(root)
    entries = take_over()
    by_root('os.sync()')
    told['took'] = before - available(root)
    assert {entry.path for entry in entries} == {'x', 'a/y'}
    assert [Path(path).read_bytes() for path in paths] == content
    for path in paths:
        assert (os.stat(path).st_uid, os.stat(path).st_mode & 0o777) == (US, 0o444)
print(json.dumps(told))
"""


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A filesystem that other users may pass through to; pytest's own directories keep them out."""
    with tempfile.TemporaryDirectory(prefix="weightd-test-") as directory:
        os.chmod(directory, 0o755)
        with mounted(request.param, Path(directory)) as point:
            point.chmod(0o777)
            yield request.param, point


def test_what_is_copied_is_whole_or_as_it_was(disk: tuple[str, Path]) -> None:
    kind, point = disk
    arguments = [str(point / "root"), str(SIZE)]
    if kind not in SHARING:
        arguments.append(str(point / "ballast"))
    ran = subprocess.run(
        [sys.executable, "-c", TAKES_OVER, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told: Any = json.loads(ran.stdout)
    assert all(one.endswith(": Input/output error") for one in told["failed"]), told
    assert ("full" in told) == (kind not in SHARING)
    assert told["off"] <= 4 * 4096
    if kind in SHARING:
        # While both stood there, and when the first was gone.
        assert told["took"] < SIZE // 4
