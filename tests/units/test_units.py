"""systemd's own word on the units: nothing in them that it does not know, and little left open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import pytest

import weightd
from weightd.daemon.activation import NAMES
from weightd.settings import load

UNITS: Final = Path(weightd.__file__).parents[1] / "systemd"
COMMAND: Final = "/usr/local/bin/weightd"

EXPOSURE_MOST: Final = 15
"""Of 100, which is 1.5 on the scale from 0 to 10 that it prints."""

SERVICES: Final = ("weightd.service", "weightd@fast.service")

pytestmark = pytest.mark.needs("systemd-analyze")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A copy with an instance of each template, whose command there is."""
    command = shutil.which("true")
    assert command is not None
    for unit in (*UNITS.glob("*.service"), *UNITS.glob("*.socket")):
        text = unit.read_text()
        assert COMMAND in text or unit.suffix == ".socket"
        copy = tmp_path / unit.name.replace("@.", "@fast.")
        copy.write_text(text.replace(COMMAND, command))
    return tmp_path


def analyze(units: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        env={"PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_COLORS": "0"},
        cwd=units,
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_is_nothing_in_them_that_systemd_does_not_know(units: Path) -> None:
    """It says so on stderr, and ends with 0 all the same."""
    found = sorted(map(str, units.glob("weightd*")))
    assert len(found) == len(list(UNITS.glob("*.service"))) + len(list(UNITS.glob("*.socket")))
    checked = analyze(units, "verify", "--man=no", *found)
    assert (checked.returncode, checked.stderr, checked.stdout) == (0, "", "")


@pytest.mark.parametrize("service", SERVICES)
def test_little_is_left_open(units: Path, service: str) -> None:
    threshold = f"--threshold={EXPOSURE_MOST}"
    looked = analyze(units, "security", "--offline=yes", threshold, str(units / service))
    assert looked.returncode == 0, looked.stdout + looked.stderr


def test_an_instance_is_the_service_but_for_where_it_is() -> None:
    one, many = (_lines(UNITS / name) for name in ("weightd.service", "weightd@.service"))
    differ = {re.sub(r"weightd(@|-)%i", "weightd", line) for line in many} ^ one
    assert {line.split("=")[0] for line in differ} <= {
        "After",
        "Also",
        "Description",
        "Environment",
        "Requires",
        "Sockets",
        "SyslogIdentifier",
    }, differ


def test_each_socket_has_the_name_that_weightd_knows_it_by() -> None:
    named = {}
    for unit in UNITS.glob("*.socket"):
        (named[unit.name],) = (
            line.partition("=")[2]
            for line in _lines(unit)
            if line.startswith("FileDescriptorName=")
        )
    assert set(named.values()) <= set(NAMES)
    assert named["weightd.socket"] == named["weightd@.socket"] == "admin"


def test_the_sockets_are_where_the_settings_have_them() -> None:
    settings = load({}, UNITS / "no-such-file").settings
    assert f"ListenStream={settings.listen}" in _lines(UNITS / "weightd-listen.socket")
    mode = f"SocketMode={settings.socket_mode:04o}"
    assert mode in _lines(UNITS / "weightd.socket")


def test_a_stop_has_more_time_than_the_drain() -> None:
    settings = load({}, UNITS / "no-such-file").settings
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.read(UNITS / "weightd.service")
    seconds = float(parser["Service"]["TimeoutStopSec"].removesuffix("s"))
    assert seconds > settings.drain_timeout + 30


def _lines(unit: Path) -> set[str]:
    """What a unit says, without its comments."""
    return {line for line in unit.read_text().splitlines() if line and line[0] not in "#["}
