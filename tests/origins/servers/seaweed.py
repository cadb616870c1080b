"""seaweedfs: a real S3 server, which Google's client can read from, too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.origins.servers.ports import free_ports, wait_until_it_listens
from tests.parts import program

ACCESS_KEY: Final = "AKIDEXAMPLE"
SECRET_KEY: Final = "seaweed-secret-that-nobody-may-see"
_SERVICES: Final = ("master", "volume", "filer", "s3")


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A running server.  Everybody may read the bucket ``public``, its owner all of them."""

    url: str
    client: Any

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def delete(self, bucket: str, key: str) -> None:
        self.client.delete_object(Bucket=bucket, Key=key)


@contextmanager
def running_seaweed(base: Path) -> Iterator[Seaweed]:
    import boto3
    from botocore.config import Config

    config = base / "s3.json"
    owner = {
        "name": "owner",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    everybody = {"name": "anonymous", "actions": ["Read:public", "List:public"]}
    config.write_text(json.dumps({"identities": [owner, everybody]}))
    ports = free_ports(2 * len(_SERVICES))
    named: list[str] = []
    for service, port, grpc in zip(_SERVICES, ports[::2], ports[1::2], strict=True):
        named += [f"-{service}.port={port}", f"-{service}.port.grpc={grpc}"]
    port = ports[2 * _SERVICES.index("s3")]
    process = subprocess.Popen(
        [
            program("weed") or "weed", "mini", f"-dir={base}", "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1", *named,
            f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false",
            "-admin.ui=false", "-master.telemetry=false",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 20, "mode": "standard"}),
    )
    try:
        wait_until_it_listens(port, process)
        for bucket in ("models", "public"):
            client.create_bucket(Bucket=bucket)
        yield Seaweed(f"http://127.0.0.1:{port}", client)
    finally:
        client.close()
        # What it holds is of no use to anybody, and it takes seconds to say goodbye.
        process.kill()
        process.wait()
