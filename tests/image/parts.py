"""A base to build the image on where no registry is: Debian's packages in a directory, and wheels.

Everything is below one directory, podman's storage too, so that removing it leaves nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cli.commands import HERE

_MINUTES: Final = 20 * 60.0
_IMAGE: Final = HERE / "deploy" / "image"


def run(*argv: object) -> str:
    """What a command prints that has to succeed."""
    ran = subprocess.run(
        [str(one) for one in argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_MINUTES,
    )
    assert ran.returncode == 0, (argv, ran.stdout[-3000:], ran.stderr[-3000:])
    return ran.stdout


@dataclass(frozen=True)
class Images:
    """Where images are kept, apart from those of the machine."""

    place: Path

    @property
    def _storage(self) -> list[str]:
        return ["--root", f"{self.place}/storage", "--runroot", f"{self.place}/run"]

    def podman(self, *argv: object) -> list[str]:
        """A command line; `runc` and cgroupfs, since no systemd has to run here."""
        how = ("--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none")
        return ["podman", *self._storage, *how, *map(str, argv)]

    def load(self, directory: Path, name: str) -> None:
        """Make an image of a directory's files."""
        archive = self.place / "base.tar"
        run("tar", "-C", directory, "-cf", archive, ".")
        run(*self.podman("import", archive, name))
        archive.unlink()

    def build(self, name: str, base: str, build_base: str, wheels: Path) -> None:
        """Build weightd's own, from the clone and from wheels that are here."""
        offline = self.place / "pip.conf"
        offline.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        run(
            *("buildah", *self._storage, "build", "--isolation", "chroot", "--format", "docker"),
            *("--build-arg", f"BASE={base}", "--build-arg", f"BUILD_BASE={build_base}"),
            *("-v", f"{wheels}:/wheels:ro", "-v", f"{offline}:/etc/pip.conf:ro"),
            *("-f", _IMAGE / "Containerfile", "-t", name, HERE),
        )

    def bytes(self, name: str) -> int:
        return int(run(*self.podman("image", "inspect", "--format", "{{.Size}}", name)))

    def remove(self) -> None:
        """Everything, mounts first."""
        subprocess.run(self.podman("rm", "-f", "-a"), capture_output=True, check=False)
        run(*self.podman("unmount", "-a"))
        run(*self.podman("rmi", "-f", "-a"))
        for layer in (self.place / "storage").glob("overlay"):
            subprocess.run(["umount", str(layer)], capture_output=True, check=False)
        shutil.rmtree(self.place / "storage")


def debian(place: Path) -> tuple[Path, Path]:
    """Two small systems: one with Python and no more, and the same with pip."""
    bare, with_pip = place / "bare", place / "with-pip"
    mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)").split()[0]
    # What it mounts in there and, if it is killed, leaves is gone with its namespace.
    command = ("unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3")
    run(*command, "bookworm", bare, mirror)
    for cached in (*bare.glob("var/cache/apt/archives/*.deb"), *bare.glob("var/lib/apt/lists/*_*")):
        cached.unlink()
    shutil.copytree(bare, with_pip, symlinks=True, ignore=_devices)
    wheel = next(iter(_pip_wheel(place)))
    # Debian's own pip draws a compiler in; the wheel is the whole of it.
    shutil.unpack_archive(wheel, with_pip / "usr/lib/python3/dist-packages", "zip")
    return bare, with_pip


def _devices(directory: str, names: list[str]) -> list[str]:
    """What a copy cannot take: devices, which the builder makes itself."""
    return names if Path(directory).name in ("dev", "proc", "sys") else []


def _pip_wheel(place: Path) -> list[Path]:
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place / "pip", "pip")
    return list((place / "pip").glob("pip-*.whl"))


def wheels(place: Path) -> Path:
    """Every wheel of the image's locks, each by its hash."""
    for lock in ("requirements.txt", "requirements-build.txt"):
        run(
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "-d", place, "-r", _IMAGE / lock),
        )
    return place
