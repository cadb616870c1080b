"""What the container boots: Debian's smallest system with systemd, and weightd as its README says.

The base is made once by debootstrap and kept; each run copies it and installs into the copy
a wheel of this tree, what that requires as it is here, and the units.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import weightd
from tests.power.image import closure, files_of, run

SOURCE: Final = Path(weightd.__file__).parents[1]
UNITS: Final = SOURCE / "systemd"
PACKAGES: Final = "systemd,systemd-sysv,dbus,python3"

KEPT: Final = Path(
    os.environ.get("WEIGHTD_SYSTEMD_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weightd-systemd"
)
"""Where the base is kept from one run to the next."""

_BUILD: Final = "import flit_core.buildapi as b, sys; print(b.build_wheel(sys.argv[1]))"

_COMMAND: Final = """#!/opt/weightd/bin/python3
import sys
from weightd.cli.main import main
sys.exit(main())
"""


def build(place: Path) -> Path:
    """Make the system below ``place``, and answer where."""
    system = place / "system"
    run("cp", "-a", "--reflink=auto", str(_base()), str(system))
    site = _environment(system)
    with tempfile.TemporaryDirectory() as built:
        run(sys.executable, "-c", _BUILD, built, cwd=SOURCE)
        with zipfile.ZipFile(next(Path(built).glob("weightd-*.whl"))) as wheel:
            wheel.extractall(site)
    _copy_requirements(site)
    _install_units(system)
    return system


def _base() -> Path:
    """Made by who comes first; who comes meanwhile waits."""
    base = KEPT / "base"
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.exists():
            fresh = KEPT / "base.new"
            run("rm", "-rf", "--one-file-system", str(fresh))
            # What it mounts in there and, if it is killed, leaves is gone with its namespace.
            command = ("unshare", "--mount", "debootstrap", "--variant=minbase")
            run(*command, f"--include={PACKAGES}", _release(), str(fresh))
            fresh.rename(base)
    return base


def _release() -> str:
    """This machine's own, whose packages it knows how to check."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def _environment(system: Path) -> Path:
    """Make /opt/weightd a virtual environment; where its packages are."""
    run("chroot", str(system), "python3", "-m", "venv", "--without-pip", "/opt/weightd")
    (site,) = (system / "opt/weightd/lib").glob("python3.*/site-packages")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert site.parent.name == version, f"the base has {site.parent.name}, and this is {version}"
    command = system / "opt/weightd/bin/weightd"
    command.write_text(_COMMAND)
    command.chmod(0o755)
    (system / "usr/local/bin/weightd").symlink_to("/opt/weightd/bin/weightd")
    return site


def _copy_requirements(site: Path) -> None:
    for one in closure("weightd"):
        for file in files_of(one):
            inside = site / file.relative_to(Path(str(one.locate_file(""))))
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, inside)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(site)], check=True)


def _install_units(system: Path) -> None:
    """Where the README says that they go, and enabled."""
    for unit in (*UNITS.glob("*.service"), *UNITS.glob("*.socket")):
        shutil.copy(unit, system / "etc/systemd/system")
    for kind in ("sysusers", "tmpfiles"):
        shutil.copy(UNITS / f"weightd.{kind}", system / f"usr/lib/{kind}.d/weightd.conf")
    run("systemd-sysusers", f"--root={system}")
    run("systemctl", f"--root={system}", "enable", "weightd.service")
