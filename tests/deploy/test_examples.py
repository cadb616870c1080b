"""The commands of the manifests, run: the examples beside a daemon, the init containers as root."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import weightd
from tests.deploy.built import DEPLOY, Object, container, pod_of, variables
from tests.system.daemon import Daemon, running
from tests.system.nursery import bare_environment

pytestmark = pytest.mark.needs("kustomize")

ENGINES: Final = {"examples/vllm": "vllm", "examples/llama-cpp": "llama-server", "sidecar": "vllm"}
"""The container that serves, which is also the program that it becomes."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with both sockets in one directory, as on a node."""
    place = tmp_path_factory.mktemp("node")
    options = ("--replica-socket", str(place / "replica.sock"), "--allow-origins", "hf://,s3://")
    with running(place / "cache", capacity=20_000_000, options=options) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has in /usr/share/weightd: nothing that was installed, and no dependency."""
    place = tmp_path_factory.mktemp("client") / "weightd"
    package = Path(weightd.__file__).parent
    shutil.copytree(package, place / "weightd", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DEPLOY / "weightd-run.sh", place)
    return place


@pytest.mark.needs("curl", "flock")
@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_is_given_the_model(
    name: str, node: Daemon, client: Path, tmp_path: Path
) -> None:
    engine = container(pod_of(name)["spec"], ENGINES[name])
    command = [one.replace("/client/weightd", str(client)) for one in engine["command"]]
    key, *_ = (one for one in command if one.count("/") == 1 and one[0] != "/")
    file = next((one.partition("{path}/")[2] for one in command if "{path}/" in one), "weights")
    put = node.client.call("PUT", f"/v1/models/{key}?file={file}", b"weights")
    assert put.status in (200, 201)
    path = put.json()["path"]
    ran = subprocess.run(
        _as_here(command, node.socket, tmp_path),
        cwd="/",
        env=_environment(engine, node, client, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    given = command[command.index("--") + 2 :]
    name_of_key = key.partition("@")[0]
    assert ran.stdout.split() == [
        *(one.replace("{path}", path).replace("{name}", name_of_key) for one in given),
        "409",
    ]
    assert node.client.call("DELETE", f"/v1/models/{key}").status == 204


def _as_here(command: list[str], admin: Path, place: Path) -> list[str]:
    """The command with a stand-in for the engine, which says its arguments and tries
    to have its model removed.

    ``python3`` is one without anything installed: -S leaves every site-packages out.
    """
    program = place / "bin" / Path(command[command.index("--") + 1]).name
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@"\ncurl -s -o {place}/refusal -w "%{{http_code}}" -X DELETE '
        f"--unix-socket {admin} http://localhost/v1/models/$WEIGHTD_KEY\n"
    )
    program.chmod(0o755)
    here = [str(program) if one == command[command.index("--") + 1] else one for one in command]
    return [sys.executable, "-S", *here[1:]] if here[0] == "python3" else here


def _environment(engine: Object, node: Daemon, client: Path, place: Path) -> dict[str, str]:
    told = variables(engine)
    told["WEIGHTD_SOCKET"] = str(node.socket.parent / "replica.sock")
    if "PYTHONPATH" in told:
        assert told["PYTHONPATH"] == "/client/weightd"
        told["PYTHONPATH"] = str(client)
    return bare_environment() | {"PATH": os.environ["PATH"]} | told


@pytest.mark.needs("root")
def test_a_directory_that_kubelet_made_is_given_to_the_daemon(tmp_path: Path) -> None:
    command = container(pod_of("base")["spec"], "owner")["command"]
    made, had = tmp_path / "made", tmp_path / "had"
    made.mkdir(mode=0o700)
    had.mkdir(mode=0o750)
    os.chown(had, 10001, 10001)
    assert _run(command, made, had).returncode == 0
    assert _whose(made) == (10001, 10001, 0o755)
    # What was prepared otherwise stays as it is.
    assert _whose(had) == (10001, 10001, 0o750)
    other = tmp_path / "other"
    other.mkdir()
    os.chown(other, 1000, 1000)
    ran = _run(command, other)
    assert (ran.returncode, _whose(other)[0]) == (1, 1000)
    assert "neither root's nor weightd's" in ran.stderr


@pytest.mark.needs("root")
def test_a_directory_of_others_is_opened_to_the_daemons_group(tmp_path: Path) -> None:
    command = container(pod_of("residency")["spec"], "writable")["command"]
    assert _run(command, tmp_path).returncode == 0
    assert _whose(tmp_path) == (os.geteuid(), 10001, 0o1775)


def _run(command: list[str], *places: Path) -> subprocess.CompletedProcess[str]:
    """An init container's program over other places than its own."""
    assert command[:2] == ["python3", "-c"]
    argv = [sys.executable, "-S", "-c", command[2], *map(str, places)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _whose(place: Path) -> tuple[int, int, int]:
    status = place.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)
