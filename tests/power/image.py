"""What the machine boots: a kernel, a first program, and a disk with this Python and weightd.

Everything is taken from the machine the test runs on: the interpreter with its
standard library and the shared libraries it loads, weightd with what it
requires, and the tests.  Files stand where they stand here, so that every path
means the same in there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import weightd

KERNEL: Final = "linux-image-cloud-amd64"
"""Debian's kernel for machines that are emulated; small, and without drivers for others."""

KEPT: Final = Path(
    os.environ.get("WEIGHTD_POWER_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weightd-power"
)
"""Where kernels are kept from one run to the next; all else is copied anew, in half a minute."""

MODULES: Final = ("virtio_pci", "virtio_blk", "xfs")
EATMYDATA: Final = "libeatmydata.so"

_NEEDLESS: Final = ("test", "idlelib", "tkinter", "ensurepip", "lib2to3")

_INIT: Final = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
for word in $(cat /proc/cmdline); do case $word in weightd.*) eval "${word#weightd.}";; esac; done
mount -t ext4 -o ro /dev/vda /new
mount -t $filesystem ${options:+-o $options} /dev/vdb /new/data
mount -t tmpfs none /new/run
for place in proc sys dev; do mount --move /$place /new/$place; done
export PATH=/bin HOME=/run TMPDIR=/run PYTHONPATH=$source PYTHONDONTWRITEBYTECODE=1
exec chroot /new $python -m tests.power.guest
"""


@dataclass(frozen=True, slots=True)
class Image:
    """Files that a machine boots from; ``words`` go on the kernel's command line."""

    kernel: Path
    initramfs: Path
    system: Path
    words: str


def build(place: Path) -> Image:
    """Make all of it below ``place``, from what this machine has now."""
    kernel = _kernel()
    system = place / "system"
    for name in ("proc", "sys", "dev", "run", "data", "bin"):
        (system / name).mkdir(parents=True)
    _copy_python(system)
    _copy_weightd(system)
    _copy_programs(system)
    source = Path(weightd.__file__).parents[1]
    # There, it would be compiled at every boot, on a processor a tenth as fast.
    run(sys.executable, "-m", "compileall", "-q", str(_inside(system, source)))
    disk = place / "system.img"
    run("mkfs.ext4", "-q", "-d", str(system), str(disk), "1500M")
    words = f"weightd.python={sys.executable} weightd.source={source}"
    return Image(kernel, _initramfs(place, kernel), disk, words)


def run(*command: str, **more: object) -> str:
    """Run a command that must succeed; its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, (command, done.stderr)
    output: str = done.stdout
    return output


# -- The kernel --------------------------------------------------------------------


def _kernel() -> Path:
    """Take the kernel out of its package, which is not installed here."""
    names: list[str] = re.findall(
        r"Depends: (linux-image-\S+)", run("apt-cache", "depends", KERNEL)
    )
    assert names, f"apt does not know {KERNEL}: run make test-power-deps on Debian"
    kept = KEPT / names[0]
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as fresh:
            run("apt-get", "download", "-q", names[0], cwd=fresh)
            package = next(Path(fresh).glob("linux-image-*.deb"))
            run("dpkg-deb", "-x", str(package), f"{fresh}/kernel")
            Path(fresh, "kernel").rename(kept)
    return next((kept / "boot").glob("vmlinuz-*"))


def _initramfs(place: Path, kernel: Path) -> Path:
    """A first filesystem: busybox, the modules in the order of their need, ``init``."""
    first = place / "first"
    for name in ("bin", "proc", "sys", "dev", "new", "modules"):
        (first / name).mkdir(parents=True)
    shutil.copy2(_which("busybox"), first / "bin" / "busybox")
    tree = kernel.parents[1] / "lib" / "modules" / kernel.name.removeprefix("vmlinuz-")
    run("depmod", "-b", str(kernel.parents[1]), tree.name)
    ordered: dict[str, None] = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        module, _, needed = line.partition(":")
        if Path(module).name.partition(".")[0] in MODULES:
            ordered |= dict.fromkeys([*reversed(needed.split()), module])
    for module in ordered:
        shutil.copy2(tree / module, first / "modules")
    (first / "modules" / "order").write_text("\n".join(Path(one).name for one in ordered))
    init = first / "init"
    init.write_text(_INIT)
    init.chmod(0o755)
    archive = place / "initramfs"
    names = "\n".join(str(one.relative_to(first)) for one in first.rglob("*"))
    with archive.open("wb") as file:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"],
            cwd=first, input=names.encode(), stdout=file, check=True,
        )  # fmt: skip
    return archive


# -- The system disk -----------------------------------------------------------------


def _copy_python(system: Path) -> None:
    standard = Path(sysconfig.get_path("stdlib"))
    ignore = shutil.ignore_patterns(*_NEEDLESS, "site-packages", "dist-packages", "config-*")
    shutil.copytree(standard, _inside(system, standard), ignore=ignore)
    program = Path(sys.executable)
    real = program.resolve()
    for one in {program, real}:
        _copy(system, real, one)
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if settings.exists():
        _copy(system, settings, settings)
    home = Path(sys.base_prefix) / "bin" / real.name
    _copy(system, real, home)
    _copy_libraries(system, [real, *standard.rglob("*.so")])


def _copy_weightd(system: Path) -> None:
    source = Path(weightd.__file__).parents[1]
    ignore = shutil.ignore_patterns("bench")
    for package in ("weightd", "tests"):
        shutil.copytree(source / package, _inside(system, source / package), ignore=ignore)
    files = [file for one in closure("weightd") for file in files_of(one)]
    for file in files:
        _copy(system, file, file)
    _copy_libraries(system, [file for file in files if ".so" in file.suffixes])


def _copy_programs(system: Path) -> None:
    busybox = _which("busybox")
    shutil.copy2(busybox, system / "bin" / "busybox")
    for applet in ("env", "sh"):
        (system / "bin" / applet).symlink_to("busybox")
    for library in Path("/usr/lib").glob(f"*/{EATMYDATA}"):
        _copy(system, library, Path("/bin") / EATMYDATA)
        _copy_libraries(system, [library])


def closure(name: str) -> list[Distribution]:
    """What ``name`` requires, itself left out: it is run from its source."""
    found: dict[str, Distribution] = {}
    wanted = _requirements(Path(weightd.__file__).parents[1] / "pyproject.toml")
    while wanted:
        one = wanted.pop().lower()
        if one in found or one == name:
            continue
        found[one] = distribution(one)
        for requirement in found[one].requires or ():
            if "extra ==" not in requirement and "python_version <" not in requirement:
                wanted.append(re.split(r"[^A-Za-z0-9._-]", requirement)[0])
    return list(found.values())


def _requirements(project: Path) -> list[str]:
    import tomllib

    listed = tomllib.loads(project.read_text())["project"]["dependencies"]
    return [re.split(r"[^A-Za-z0-9._-]", one)[0] for one in listed]


def files_of(one: Distribution) -> Iterator[Path]:
    for file in one.files or ():
        path = Path(str(file.locate()))
        if path.is_file() and ".." not in file.parts:
            yield path


def _copy_libraries(system: Path, programs: list[Path]) -> None:
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
        for library in re.findall(r"(/\S+) \(0x", listed.stdout):
            _copy(system, Path(library).resolve(), Path(library))


def _copy(system: Path, source: Path, place: Path) -> None:
    inside = _inside(system, place)
    if not inside.exists():
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, inside)


def _inside(system: Path, path: Path) -> Path:
    return system / str(path).lstrip("/")


def _which(program: str) -> Path:
    found = shutil.which(program)
    assert found is not None, program
    return Path(found)
