"""The models of the fetch scenario, on every server that they are fetched from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.place import write_random
from tests.bench.processes import child
from tests.origins.servers.hub import Elsewhere, running_hub
from tests.origins.servers.nginx import running_nginx
from tests.origins.servers.ports import free_ports, wait_until_it_listens
from tests.origins.servers.seaweed import Seaweed, running_seaweed

ROUND_TRIP_MILLISECONDS: Final = 50
WINDOW_BYTES: Final = 1 << 20
"""Of one connection over the distance, what may be under way; so one brings 20 MiB a second."""

BUCKET: Final = "public"


@dataclass(frozen=True, slots=True)
class Model:
    """Files of equal size: their names, and what each of them is."""

    name: str
    paths: tuple[str, ...]
    sha256s: tuple[str, ...]
    each: int

    @property
    def bytes(self) -> int:
        return self.each * len(self.paths)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the models are, and the environment in which a client finds the hub and S3."""

    web: str
    far: str
    s3: str
    environment: dict[str, str]

    def url(self, kind: str, model: Model, path: str) -> str:
        """Where any client reads one file."""
        bases = {"http": self.web, "far": self.far, "hub": self.web, "s3": f"{self.s3}/{BUCKET}"}
        return f"{bases[kind]}/{model.name}/{path}"

    def source(self, kind: str, model: Model) -> str:
        """The reference that weightd is given."""
        return {
            "http": f"{self.web}/{model.name}/listing.json",
            "far": f"{self.far}/{model.name}/listing.json",
            "hub": f"hf://bench/{model.name}",
            "s3": f"s3://{BUCKET}/{model.name}?anonymous=true",
        }[kind]


@contextmanager
def served(base: Path, shapes: dict[str, tuple[int, int]]) -> Iterator[tuple[Servers, list[Model]]]:
    """Models of the names in ``shapes``, each of so many files of so many bytes, on servers.

    The hub says where the web server has its files, as a hub does.
    """
    with ExitStack() as stack:
        nginx = stack.enter_context(running_nginx(base / "web"))
        (base / "s3").mkdir()
        seaweed = stack.enter_context(running_seaweed(base / "s3"))
        hub = stack.enter_context(running_hub())
        models = [
            _made(nginx.root / name, name, count, each) for name, (count, each) in shapes.items()
        ]
        far = stack.enter_context(_distance(nginx.port))
        environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(base / "hub"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "AWS_ENDPOINT_URL": seaweed.url,
            "AWS_REGION": "us-east-1",
        }
        servers = Servers(nginx.url, f"http://127.0.0.1:{far}", seaweed.url, environment)
        for model in models:
            files = zip(model.paths, model.sha256s, strict=True)
            told = {
                path: Elsewhere(model.each, sha256, servers.url("hub", model, path))
                for path, sha256 in files
            }
            hub.push(f"bench/{model.name}", told)
            _store(seaweed, nginx.root, model)
        yield servers, models


def _made(root: Path, name: str, count: int, each: int) -> Model:
    root.mkdir()
    paths = tuple(f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1))
    for path in paths:
        write_random(root / path, each)
    sha256s = tuple(_sha256(root / path) for path in paths)
    files = [
        {"path": path, "bytes": each, "sha256": sha256}
        for path, sha256 in zip(paths, sha256s, strict=True)
    ]
    (root / "listing.json").write_text(json.dumps({"files": files}))
    return Model(name, paths, sha256s, each)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _store(seaweed: Seaweed, root: Path, model: Model) -> None:
    for path in model.paths:
        key = f"{model.name}/{path}"
        seaweed.client.upload_file(str(root / key), BUCKET, key)


@contextmanager
def _distance(server: int) -> Iterator[int]:
    """A port on which the web server is far away."""
    (port,) = free_ports(1)
    given = (port, server, ROUND_TRIP_MILLISECONDS, WINDOW_BYTES)
    with child("tests.bench.distance", *(str(one) for one in given)) as process:
        wait_until_it_listens(port, process)
        yield port
