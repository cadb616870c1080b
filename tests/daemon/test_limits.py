"""The daemon takes the open files that the system lets it have."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from weightd.daemon.limits import raise_open_files
raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


PLACES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from weightd.daemon.limits import DESCRIPTORS_EACH, OWN_DESCRIPTORS, connections_limit
print(1024 - OWN_DESCRIPTORS - connections_limit() * DESCRIPTORS_EACH in range(DESCRIPTORS_EACH))
"""


def test_connections_leave_the_daemon_the_descriptors_it_needs_itself() -> None:
    ran = subprocess.run([sys.executable, "-c", PLACES], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
