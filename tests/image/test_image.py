"""The image, built and run as Kubernetes would: read-only, no capability, no root, no registry."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.built import container, only, pod_of
from tests.image.parts import Images, debian, run, wheels
from tests.polling import until

USER: Final = 10001
OTHER: Final = 2000
BARE: Final = "localhost/weightd-test-bare"
WITH_PIP: Final = "localhost/weightd-test-pip"
NAME: Final = "localhost/weightd-test"

FEATURES: Final = "/etc/kubernetes/node-feature-discovery/features.d"
TEXTFILE: Final = "/var/lib/node-exporter/textfile"

RESTRICTED: Final = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"),
    *("--security-opt", "no-new-privileges"),
    # Below the limits of whoever runs the tests, above which podman asks otherwise.
    *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=2000:2000"),
)

pytestmark = [
    pytest.mark.needs("root", "debootstrap", "buildah", "podman", "runc", "kustomize"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    place = tmp_path_factory.mktemp("image")
    images = Images(place)
    bare, with_pip = debian(place)
    try:
        images.load(bare, BARE)
        images.load(with_pip, WITH_PIP)
        began = time.monotonic()
        images.build(NAME, BARE, WITH_PIP, wheels(place / "wheels"))
        added = images.bytes(NAME) - images.bytes(BARE)
        seconds = time.monotonic() - began
        sys.stdout.write(f"built in {seconds:.0f} s, {added / 1e6:.0f} MB above its base\n")
        yield images
    finally:
        images.remove()
        shutil.rmtree(place)


class Node:
    """A node's directories, and what runs on it."""

    def __init__(self, images: Images, place: Path) -> None:
        self.images = images
        self.cache, self.sockets, self.client = place / "cache", place / "sockets", place / "client"
        self.config = place / "weightd"
        self.features = place / "features.d"
        for made in (self.cache, self.sockets, self.client, self.config, self.features):
            made.mkdir()
        # As kubelet makes an emptyDir.
        self.client.chmod(0o777)
        place.chmod(0o755)
        [(name, text)] = only("base", "ConfigMap")["data"].items()
        (self.config / name).write_text(text)
        # The rest is root's, as kubelet makes it, until those who may give it away have been.
        self.begin("owner", *self.mounts())
        self.begin("writable", "-v", f"{self.features}:{FEATURES}", "--tmpfs", TEXTFILE)

    def begin(self, name: str, *mounts: str) -> None:
        """An init container of the daemon's, as root with the one capability that it asks for."""
        command = container(pod_of("residency")["spec"], name)["command"]
        run(
            *self.images.podman(
                *("run", "--rm", *RESTRICTED, "--cap-add", "CHOWN", "--user", "0:0", *mounts),
                *("--network", "none", "--entrypoint", command[0], NAME, *command[1:]),
            )
        )

    def mounts(self, how: str = "") -> list[str]:
        """As the manifests have them."""
        return [
            *("-v", f"{self.cache}:/var/cache/weightd{how}"),
            *("-v", f"{self.sockets}:/run/weightd{how}"),
        ]

    @contextmanager
    def daemon(self) -> Iterator[str]:
        """The daemon by the config map, until the context is left; its container's name."""
        name = f"weightd-{self.cache.parent.name}"
        arguments = container(pod_of("base")["spec"], "weightd")["args"]
        run(
            *self.images.podman(
                *("run", "-d", "--name", name, *RESTRICTED, "--network", "none", *self.mounts()),
                *("-v", f"{self.config}:/etc/weightd:ro", "-v", f"{self.features}:{FEATURES}"),
                *("-e", f"WEIGHTD_NODE_LABELS={FEATURES}/weightd"),
                *("--tmpfs", "/tmp", NAME, *arguments),
            )
        )
        try:
            until(lambda: self.healthy(name), lambda: self.logs(name))
            yield name
        finally:
            run(*self.images.podman("rm", "-f", name))

    def healthy(self, name: str) -> bool:
        """What the image's own health check says."""
        ran = subprocess.run(
            self.images.podman("healthcheck", "run", name), capture_output=True, check=False
        )
        return ran.returncode == 0

    def logs(self, name: str) -> str:
        """What it said, which podman gives back as it came: the log on stderr."""
        logs = self.images.podman("logs", name)
        return subprocess.run(logs, capture_output=True, text=True, check=True).stderr

    def inside(self, name: str, *command: str) -> str:
        return run(*self.images.podman("exec", name, *command))

    def replica(self, *command: str, group: int = USER) -> subprocess.CompletedProcess[str]:
        """A command in an image without weightd, as another user, of the daemon's group."""
        engine = container(pod_of("examples/vllm")["spec"], "vllm")
        told = [f"-e={one['name']}={one['value']}" for one in engine["env"]]
        return subprocess.run(
            self.images.podman(
                *("run", "--rm", *RESTRICTED, "--network", "none", "--user", f"{OTHER}:{OTHER}"),
                *("--group-add", group, *self.mounts(":ro"), "-v", f"{self.client}:/client:ro"),
                *(*told, BARE, *command),
            ),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def node(images: Images, tmp_path: Path) -> Node:
    return Node(images, tmp_path)


def test_it_is_what_the_definition_says(images: Images) -> None:
    def said(format: str) -> str:
        return run(*images.podman("image", "inspect", "--format", format, NAME)).strip()

    assert said("{{.Config.User}}") == f"{USER}:{USER}"
    assert said("{{.Config.StopSignal}}") in ("SIGTERM", "15")
    assert "healthy.py" in said("{{.HealthCheck}}")
    assert said('{{index .Labels "org.opencontainers.image.title"}}') == "weightd"


def test_it_serves_read_only_and_without_root(node: Node) -> None:
    with node.daemon() as name:
        assert node.inside(name, "id", "-u").strip() == str(USER)
        assert node.inside(name, "sh", "-c", "touch /x 2>/dev/null || echo refused") == "refused\n"
        weights = ("sh", "-c", "echo weights >/tmp/w && weightd put org/m /tmp/w --file weights")
        node.inside(name, *weights)
        path = node.inside(name, "weightd", "get", "org/m").strip()
        assert path.startswith("/var/cache/weightd/models/org+m.")
        node.inside(name, "weightd", "pin", "org/m", "--holder", "test")
        assert "test" in node.inside(name, "weightd", "pins")
        assert node.healthy(name)
        until(lambda: "weightd.io/model.org_m=true\n" in (node.features / "weightd").read_text())
        node.inside(name, "python3", "-c", "import obstore")
        run(*node.images.podman("stop", "-t", "60", name))
        code = run(*node.images.podman("inspect", "--format", "{{.State.ExitCode}}", name))
        assert (code.strip(), "stopped" in node.logs(name)) == ("0", True), (code, node.logs(name))
    # Another one finds the model and the pin.
    with node.daemon() as name:
        assert node.inside(name, "weightd", "get", "org/m").strip() == path
        assert "test" in node.inside(name, "weightd", "pins")


def test_an_image_without_weightd_starts_through_it(node: Node) -> None:
    spec = pod_of("examples/vllm")["spec"]
    lay_down = container(spec, "client")["command"]
    run(
        *node.images.podman(
            *("run", "--rm", *RESTRICTED, "--user", OTHER, "-v", f"{node.client}:/client"),
            *("--group-add", USER, "--entrypoint", lay_down[0], NAME, *lay_down[1:]),
        )
    )
    with node.daemon() as name:
        put = "echo weights >/tmp/w && weightd put org/m /tmp/w --file weights"
        node.inside(name, "sh", "-c", put)
        weightd_run = ("python3", "-m", "weightd", "run", "org/m", "--", "cat", "{path}/weights")
        ran = node.replica(*weightd_run)
        assert (ran.returncode, ran.stdout) == (0, "weights\n"), ran.stderr
        # Who is not of the group reads nothing, and the whole API is the daemon's alone.
        stranger = node.replica(*weightd_run, group=OTHER)
        assert stranger.returncode != 0
        assert "Permission denied" in stranger.stderr
        assert node.replica("sh", "-c", "test -w /run/weightd/weightd.sock").returncode == 1
        modes = run("find", node.cache, "-name", "weights", "-type", "f", "-printf", "%m %G")
        assert modes == f"440 {USER}"
