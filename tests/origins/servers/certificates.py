"""A certificate authority of the tests' own, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Authority:
    """``root`` signs ``certificate``, which is localhost's and has ``key``."""

    root: Path
    certificate: Path
    key: Path

    @classmethod
    def make(cls, base: Path) -> Self:
        root, certificate, key = base / "root.pem", base / "host.pem", base / "host.key"
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        new += ["-nodes", "-days", "30"]
        _run(new, "-subj", "/CN=tests", "-keyout", base / "root.key", "-out", root,
             "-addext", "basicConstraints=critical,CA:TRUE",
             "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
        _run(new, "-subj", "/CN=localhost", "-keyout", key, "-out", certificate,
             "-addext", "subjectAltName=DNS:localhost", "-addext",
             "basicConstraints=critical,CA:FALSE", "-CA", root, "-CAkey", base / "root.key",
             )  # fmt: skip
        return cls(root, certificate, key)


def _run(command: list[str], *arguments: str | Path) -> None:
    subprocess.run([*command, *arguments], check=True, capture_output=True)
