"""A daemon that is not root, and writers of other users: who may, who may not any more.

The daemon, the writers and root are different users in processes of their own.
What a writer still has in his hands when he commits changes nothing that is
published, and the books are the disk's all the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.polling import until_nothing
from tests.system.daemon import Daemon, running
from tests.system.models import blocks_of
from tests.system.writers import PRELUDE

pytestmark = [pytest.mark.needs("root", "setpriv")]

CAPACITY: Final = 4 << 20
DAEMON: Final = 65533
WRITER: Final = 65534
ROOT: Final = 0


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """The daemon's own, which all others may pass through."""
    with tempfile.TemporaryDirectory(prefix="weightd-test-") as directory:
        os.chown(directory, DAEMON, DAEMON)
        os.chmod(directory, 0o755)
        yield Path(directory)


@contextmanager
def serving(root: Path, *tracing: str) -> Iterator[Daemon]:
    prefix = (*tracing, "setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}", "--clear-groups")
    options = ("--socket-mode", "0666")
    with running(root, capacity=CAPACITY, options=options, prefix=prefix) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def daemon(place: Path) -> Iterator[Daemon]:
    with serving(place / "cache") as daemon:
        yield daemon


@pytest.fixture
def outside(daemon: Daemon) -> Iterator[Path]:
    """A place on the same filesystem that is the writer's."""
    with tempfile.TemporaryDirectory(dir=daemon.root.parent) as directory:
        os.chown(directory, WRITER, WRITER)
        yield Path(directory)


def writes(daemon: Daemon, key: str, outside: Path, code: str, user: int = WRITER) -> Any:
    """What a writer is told, and finds, by ``code``."""
    code = f"{PRELUDE}{code}\nprint(json.dumps(told))"
    arguments = [str(daemon.socket), key, str(user), str(outside)]
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + daemon.said()
    agrees(daemon)
    return json.loads(ran.stdout)


def agrees(daemon: Daemon) -> None:
    """Nothing is under way, and what is booked is on the disk."""
    # What is large is unlinked in the background.
    until_nothing(lambda: daemon.client.status()["doomed_bytes"], daemon.said)
    status = daemon.client.status()
    assert status["reserved_bytes"] == 0
    assert status["used_bytes"] == blocks_of(daemon.root)
    assert not os.listdir(daemon.root / "incoming")
    for left in (daemon.root / "doomed").glob("*/*/private"):
        # What its maker hides only he, or root, can give back.
        left.chmod(0o777)
    until_nothing(lambda: os.listdir(daemon.root / "doomed"), daemon.said)


def is_published(record: Any, **files: bytes) -> None:
    """A model is there, the daemon's, closed to writers, with no list of whom it lets in."""
    top = Path(record["path"])
    assert {path.name: path.read_bytes() for path in top.rglob("*") if path.is_file()} == files
    for path in (top, *top.rglob("*")):
        assert path.stat().st_uid == DAEMON
        assert path.stat().st_mode & 0o222 == 0
        assert not [name for name in os.listxattr(path) if "acl" in name]


@pytest.mark.parametrize("user", [WRITER, ROOT])
def test_what_is_written_into_what_was_made_is_the_daemons(
    daemon: Daemon, outside: Path, user: int
) -> None:
    """No copy: the very file that was written to is published."""
    told = writes(
        daemon,
        f"written/{user}",
        outside,
        """
upload = begin(x=2, a__y=2)
place = Path(upload['path'])
for path in ('x', 'a/y'):
    (place / path).write_bytes(b'12')
told['inode'] = (place / 'x').stat().st_ino
told['others'] = [path.stat().st_mode & 7 for path in (place, place / 'a', place / 'x')]
told['record'] = commit(upload)
""",
        user,
    )
    is_published(told["record"], x=b"12", y=b"12")
    assert told["others"] == [0, 0, 0]
    assert Path(told["record"]["path"], "x").stat().st_ino == told["inode"]


@pytest.mark.parametrize("user", [WRITER, ROOT])
def test_the_client_puts_without_a_copy(daemon: Daemon, outside: Path, user: int) -> None:
    told = writes(
        daemon,
        f"put/{user}",
        outside,
        """
(outside / 'weights').write_bytes(b'w' * 100_000)
with Weightd(sys.argv[1]) as weightd:
    def see(sent):
        [upload] = call('GET', '/v1/uploads')['uploads']
        told['seen'] = [path.stat().st_uid for path in Path(upload['path']).iterdir()]
    model = weightd.put(key, outside / 'weights', progress=see)
told['record'] = {'path': str(model.path)}
""",
        user,
    )
    assert told["seen"] == [DAEMON]
    is_published(told["record"], weights=b"w" * 100_000)


def test_what_he_put_in_its_place_is_copied(daemon: Daemon, outside: Path) -> None:
    """He has it open for writing, mapped, and under another name: none of that is published."""
    told = writes(
        daemon,
        "copied",
        outside,
        """
upload = begin(x=4096, y=1)
place = Path(upload['path'])
own(place / 'x', b'x' * 4096)
own(place / 'y', b'y')
told['inode'] = (place / 'x').stat().st_ino
file = open(place / 'x', 'r+b')
mapping = mmap.mmap(file.fileno(), 4096)
os.link(place / 'x', outside / 'x')
told['linked'] = commit(upload)
(outside / 'x').unlink()
told['record'] = commit(upload)
mapping[:4] = b'evil'
mapping.flush()
file.write(b'evil')
file.flush()
told['again'] = refused(open, Path(told['record']['path']) / 'x', 'r+b')
""",
    )
    assert (told["linked"]["code"], told["again"]) == ("invalid-request", "Permission denied")
    assert "another name" in told["linked"]["detail"]
    is_published(told["record"], x=b"x" * 4096, y=b"y")
    assert Path(told["record"]["path"], "x").stat().st_ino != told["inode"]


def test_what_he_has_open_for_writing_is_refused(daemon: Daemon, outside: Path) -> None:
    told = writes(
        daemon,
        "open",
        outside,
        """
upload = begin(x=4096)
place = Path(upload['path'])
file = open(place / 'x', 'r+b')
file.write(b'x' * 4096)
file.flush()
told['open'] = commit(upload)
mapping = mmap.mmap(file.fileno(), 4096)
file.close()
told['mapped'] = commit(upload)
mapping[:4] = b'good'
mapping.close()
os.link(place / 'x', outside / 'x')
told['linked'] = commit(upload)
(outside / 'x').unlink()
reading = os.open(place / 'x', os.O_RDONLY)
told['record'] = commit(upload)
told['again'] = refused(os.open, f'/proc/self/fd/{reading}', os.O_RDWR)
""",
    )
    assert [told[one]["code"] for one in ("open", "mapped")] == ["in-use", "in-use"]
    assert "another name" in told["linked"]["detail"]
    assert told["again"] == "Permission denied"
    is_published(told["record"], x=b"good" + b"x" * 4092)


def test_the_directory_is_closed_to_whoever_stands_in_it(daemon: Daemon, outside: Path) -> None:
    told = writes(
        daemon,
        "closed",
        outside,
        """
upload = begin(x=2, a__y=2)
place = Path(upload['path'])
(place / 'x').write_bytes(b'12')
(place / 'a/y').write_bytes(b'12')
top, below = os.open(place, os.O_RDONLY), os.open(place / 'a', os.O_RDONLY)
os.chdir(place)
told['record'] = commit(upload)
told['after'] = [
    refused(os.open, 'more', os.O_WRONLY | os.O_CREAT, dir_fd=top),
    refused(os.open, 'more', os.O_WRONLY | os.O_CREAT, dir_fd=below),
    refused(os.unlink, 'y', dir_fd=below),
    refused(os.rename, 'x', 'z', src_dir_fd=top, dst_dir_fd=top),
    refused(os.symlink, '/etc/hostname', 'more'),
    refused(os.chmod, top, 0o777),
]
told['siblings'] = refused(os.listdir, place.parent.parent)
""",
    )
    assert set(told["after"][:5]) == {"Permission denied"}
    assert told["after"][5] == "Operation not permitted"
    assert told["siblings"] == "Permission denied"
    is_published(told["record"], x=b"12", y=b"12")


def test_a_directory_of_his_own_is_refused(daemon: Daemon, outside: Path) -> None:
    """Swapped for a link, for one of his own, or closed to the daemon; he may mend it."""
    told = writes(
        daemon,
        "swapped",
        outside,
        """
upload = begin(a__y=2)
place = Path(upload['path'])
(outside / 'a').mkdir(mode=0o755)
outside.chmod(0o755)
os.rename(place / 'a', outside / 'kept')
os.symlink(outside / 'a', place / 'a')
(outside / 'a/y').write_bytes(b'12')
told['link'] = commit(upload)
(place / 'a').unlink()
(place / 'a').mkdir()
(place / 'a/y').write_bytes(b'12')
(place / 'a/y').chmod(0o644)
told['own'] = commit(upload)
shutil.rmtree(place / 'a')
os.rename(outside / 'kept', place / 'a')
own(place / 'a/y')
(place / 'a/y').chmod(0o600)
told['unreadable'] = commit(upload)
(place / 'a/y').chmod(0o644)
told['record'] = commit(upload)
""",
    )
    assert {told[one]["code"] for one in ("link", "own", "unreadable")} == {"invalid-request"}
    assert "directory a" in told["own"]["detail"]
    assert "chmod a+r" in told["unreadable"]["detail"]
    assert f"user {DAEMON}" in told["unreadable"]["detail"]
    is_published(told["record"], y=b"12")


def test_what_was_replaced_is_his_again_when_the_rest_is_wrong(
    daemon: Daemon, outside: Path
) -> None:
    told = writes(
        daemon,
        "wrong",
        outside,
        """
upload = call('POST', '/v1/uploads', {'key': key, 'files': [
    {'path': 'x', 'bytes': 2},
    {'path': 'y', 'bytes': 2, 'sha256': '0' * 64}]})
place = Path(upload['path'])
own(place / 'x')
own(place / 'y')
told['wrong'] = commit(upload)
told['status'] = call('GET', '/v1/status')
for path in ('x', 'y'):
    (place / path).write_bytes(b'34')
(place / 'more').write_bytes(b'')
told['more'] = commit(upload)
told['given up'] = call('DELETE', '/v1/uploads/' + upload['id'])
""",
    )
    assert told["wrong"]["code"] == "digest-mismatch"
    assert told["status"]["reserved_bytes"] == 8192
    assert told["status"]["written_bytes"] == 8192
    assert "not announced" in told["more"]["detail"]


def test_there_is_room_for_a_copy_or_it_is_said(daemon: Daemon, outside: Path) -> None:
    told = writes(
        daemon,
        "large",
        outside,
        """
upload = begin(x=3 << 20)
own(Path(upload['path']) / 'x', b'x' * (3 << 20))
told['blocked'] = commit(upload)
(Path(upload['path']) / 'x').unlink()
(Path(upload['path']) / 'x').write_bytes(b'')
told['still'] = call('DELETE', '/v1/uploads/' + upload['id'])
""",
    )
    assert told["blocked"]["code"] == "blocked"
    assert "write into that instead" in told["blocked"]["detail"]


def test_what_is_hidden_from_the_daemon_ends_it(daemon: Daemon, outside: Path) -> None:
    """And what was written beyond what was announced, in whatever way."""
    told = writes(
        daemon,
        "hidden",
        outside,
        """
import time
def ends(upload):
    for _ in range(600):
        if not call('GET', '/v1/uploads')['uploads']:
            return commit(upload)
        time.sleep(0.05)  # nothing announces it
upload = begin(x=2)
place = Path(upload['path'])
(place / 'private').mkdir()
(place / 'private/x').write_bytes(b'')
(place / 'private').chmod(0)
told['hidden'] = ends(upload)
upload = begin(x=2)
os.system('fallocate -n -l 100M ' + upload['path'] + '/x')
told['ahead'] = ends(upload)
""",
    )
    assert "closed to user" in told["hidden"]["detail"]
    assert "were announced" in told["ahead"]["detail"]


@pytest.mark.needs("strace")
def test_where_nobody_can_be_let_in_the_client_sends_it(place: Path) -> None:
    """A filesystem without access control lists: no upload, and no directory open to all."""
    (place / "elsewhere").mkdir(mode=0o755)
    os.chown(place / "elsewhere", DAEMON, DAEMON)
    # The tracer stands beside the daemon, and ends with it.
    tracing = ["strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsetxattr"]
    tracing += ["-e", "inject=fsetxattr:error=EOPNOTSUPP"]
    with serving(place / "elsewhere" / "cache", *tracing) as daemon:
        told = writes(
            daemon,
            "sent",
            place,
            """
told['refused'] = begin(x=2)
with Weightd(sys.argv[1]) as weightd:
    model = weightd.put(key, '/etc/hostname', file='x')
told['record'] = {'path': str(model.path)}
""",
        )
    assert told["refused"]["code"] == "forbidden"
    assert "no access control lists" in told["refused"]["detail"]
    is_published(told["record"], x=Path("/etc/hostname").read_bytes())
