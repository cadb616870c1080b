"""The image's definition, as far as it can be judged without building it (tests/image does)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

import weightd
from tests.cli.commands import HERE
from tests.deploy.built import DEPLOY, container, pod_of
from tests.parts import program
from tests.system.daemon import running

IMAGE: Final = DEPLOY / "image"
DEFINITION: Final = (IMAGE / "Containerfile").read_text()

_PINNED: Final = re.compile(r"^([a-z][a-z0-9-]*)==(\S+)((?: \\\n    --hash=\S+)+)", re.MULTILINE)


def pinned(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """The version and the hashes of each package of a lock."""
    return {
        name: (version, frozenset(hashes.split()) - {"\\"})
        for name, version, hashes in _PINNED.findall(lock.read_text())
    }


def instruction(name: str) -> str:
    """What the last instruction of that name says."""
    return str(re.findall(rf"^{name} (.*)$", DEFINITION, re.MULTILINE)[-1])


@pytest.mark.needs("hadolint")
def test_hadolint_finds_nothing() -> None:
    hadolint = program("hadolint")
    assert hadolint is not None
    ran = subprocess.run(
        [hadolint, str(IMAGE / "Containerfile")], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-build.txt"])
def test_what_the_image_has_is_what_was_tested(lock: str) -> None:
    tested = pinned(HERE / "requirements-dev.txt")
    for name, pin in pinned(IMAGE / lock).items():
        assert pin == tested[name], f"{name}: make lock"


def test_the_locks_have_every_dependency() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["objects"],
    ]
    names = {re.split(r"[<>=]", one)[0] for one in asked}
    assert names <= set(pinned(IMAGE / "requirements.txt"))
    assert list(pinned(IMAGE / "requirements-build.txt")) == ["flit-core"]


def test_the_version_is_this_one() -> None:
    assert f"ARG VERSION={weightd.__version__}\n" in DEFINITION
    assert f"registry.example/weightd:{weightd.__version__} ." in DEFINITION


@pytest.mark.needs("kustomize")
def test_it_is_the_image_that_the_manifests_are_for() -> None:
    spec = pod_of("base")["spec"]
    user = spec["securityContext"]["runAsUser"]
    assert instruction("USER") == f"{user}:{user}"
    assert f"--uid {user} --gid {user} " in DEFINITION
    [port] = container(spec, "weightd")["ports"]
    assert instruction("EXPOSE") == str(port["containerPort"])
    assert instruction("ENTRYPOINT") == '["weightd"]'
    for name in ("examples/vllm", "examples/llama-cpp", "sidecar"):
        command = container(pod_of(name)["spec"], "client")["command"]
        assert command == ["cp", "-r", "/usr/share/weightd", "/client/"]


def test_the_health_check_asks_the_daemon(root: Path) -> None:
    assert '"/usr/share/weightd/healthy.py"]' in DEFINITION
    check = [sys.executable, str(IMAGE / "healthy.py")]
    with running(root, capacity=1_000_000) as daemon:
        told = {"WEIGHTD_SOCKET": str(daemon.socket), "PYTHONPATH": str(HERE)}
        well = subprocess.run(check, env=told, capture_output=True, text=True, check=False)
        assert (well.returncode, well.stdout, well.stderr) == (0, "", "")
        daemon.stop()
    gone = subprocess.run(check, env=told, capture_output=True, text=True, check=False)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr.startswith("No daemon answers")
