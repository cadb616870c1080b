"""Replicas that never pinned, beside a daemon that wants their room."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.store.support import HOLDS, process, process_elsewhere
from tests.system.daemon import Answer, Daemon, running

MB = 1 << 20
CAPACITY = 10 * MB

# Maps the file, closes its descriptor, and compares all of it when it is told to end.
READS_ALL = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
print('ready', flush=True)
sys.stdin.readline()
print(m[:] == b'u' * len(m), flush=True)
sys.stdin.read()
"""


def put(daemon: Daemon, key: str, byte: bytes, size: int) -> Answer:
    return daemon.client.call("PUT", f"/v1/models/{key}", byte * size)


def path_of(daemon: Daemon, key: str) -> Path:
    return Path(daemon.client.get(f"/v1/models/{key}")["path"])


def test_one_that_maps_a_model_and_never_pinned_keeps_it(root: Path) -> None:
    with running(root, capacity=CAPACITY) as daemon:
        assert put(daemon, "used", b"u", 6 * MB).status == 201
        path = path_of(daemon, "used")
        with process(READS_ALL, path / "used") as replica:
            assert replica.stdin is not None
            assert replica.stdout is not None
            refused = put(daemon, "wanted", b"w", 6 * MB)
            assert (refused.status, refused.json()["code"]) == (503, "blocked")
            gone = daemon.client.call("DELETE", "/v1/models/used")
            assert (gone.status, gone.json()["code"]) == (409, "in-use")
            assert path.exists()
            replica.stdin.write("\n")
            replica.stdin.flush()
            assert replica.stdout.readline() == "True\n"
        wanted = daemon.client.call("PUT", "/v1/models/wanted?wait=30", b"w" * (6 * MB))
        assert wanted.status == 201
        assert not path.exists()
        assert daemon.stop() == 0


@pytest.mark.needs("flock")
def test_a_hold_outlives_the_daemon(root: Path) -> None:
    """The kernel keeps it: neither a kill nor a start lets the model go."""
    with running(root, capacity=CAPACITY) as daemon:
        assert put(daemon, "used", b"u", 6 * MB).status == 201
        path = path_of(daemon, "used")
        command = ["flock", "-s", os.fspath(path), "sh", "-c", "echo ready; read line; true"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as replica:
            assert replica.stdin is not None
            assert replica.stdout is not None
            assert replica.stdout.readline() == "ready\n"
            daemon.kill()
            with running(root, capacity=CAPACITY) as again:
                assert put(again, "wanted", b"w", 6 * MB).status == 503
                assert (path / "used").read_bytes() == b"u" * (6 * MB)
                replica.stdin.close()
                assert replica.wait() == 0
                wanted = again.client.call("PUT", "/v1/models/wanted?wait=30", b"w" * (6 * MB))
                assert wanted.status == 201
                assert not path.exists()
                assert again.stop() == 0


@pytest.mark.needs("root", "unshare", "mount")
@pytest.mark.parametrize(
    ("code", "file", "kind"), [(READS_ALL, "used", "use"), (HOLDS, ".", "hold")]
)
def test_one_with_a_read_only_mount_of_its_own_keeps_what_it_has(
    root: Path, tmp_path: Path, code: str, file: str, kind: str
) -> None:
    """As in a container: neither another namespace nor a daemon that was killed hides it."""
    with running(root, capacity=CAPACITY) as daemon:
        assert put(daemon, "used", b"u", 6 * MB).status == 201
        path = path_of(daemon, "used")
        with process_elsewhere(code, root, tmp_path / "mount", path / file) as replica:
            _is_kept(daemon, path, kind)
            daemon.kill()
            with running(root, capacity=CAPACITY) as again:
                _is_kept(again, path, kind)
                if kind == "use":
                    assert replica.stdin is not None
                    assert replica.stdout is not None
                    replica.stdin.write("\n")
                    replica.stdin.flush()
                    assert replica.stdout.readline() == "True\n"
        with running(root, capacity=CAPACITY) as last:
            assert put(last, "wanted", b"w", 6 * MB).status == 201
            assert not path.exists()
            assert last.stop() == 0


def _is_kept(daemon: Daemon, path: Path, kind: str) -> None:
    """Neither asked for its room nor by name does it go, and the list says why."""
    refused = put(daemon, "wanted", b"w", 6 * MB)
    assert (refused.status, refused.json()["code"]) == (503, "blocked")
    gone = daemon.client.call("DELETE", "/v1/models/used")
    assert (gone.status, gone.json()["code"]) == (409, "in-use")
    pins = daemon.client.get("/v1/pins")["pins"]
    assert [(one["kind"], one["key"]) for one in pins] == [(kind, "used")]
    assert (path / "used").read_bytes() == b"u" * (6 * MB)
