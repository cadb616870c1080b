"""azurite: Azure's own emulator of its blob store."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.origins.servers.ports import end, free_ports, wait_until_it_listens

ACCOUNT: Final = "devstoreaccount1"
# The emulator's own key, which its documentation gives to everybody.
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True)
class Azurite:
    """A running emulator with one container, ``models``."""

    url: str
    container: Any

    def put(self, name: str, content: bytes) -> None:
        self.container.upload_blob(name, content, overwrite=True)

    def delete(self, name: str) -> None:
        self.container.delete_blob(name)


@contextmanager
def running_azurite(base: Path) -> Iterator[Azurite]:
    from azure.storage.blob import ContainerClient

    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            "azurite-blob", "--silent", "--location", base, "--blobHost", "127.0.0.1",
            "--blobPort", str(port), "--disableTelemetry", "--skipApiVersionCheck",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        wait_until_it_listens(port, process)
        with ContainerClient(url, "models", credential=KEY) as container:
            container.create_container()
            yield Azurite(url, container)
    finally:
        end(process)
