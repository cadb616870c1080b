"""A real Prometheus that scrapes every second or so and goes by our rules, with short times."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.origins.servers.ports import end, free_ports, wait_until_it_listens
from tests.polling import until
from tests.prometheus.quick import EVERY, quick
from tests.prometheus.rules import ALERTS, RECORDINGS

_CONFIG: Final = """
global: {{scrape_interval: {every}, scrape_timeout: {every}, evaluation_interval: {every}}}
rule_files: [{place}/recordings.yaml, {place}/alerts.yaml]
scrape_configs:
  - job_name: weightd
    file_sd_configs: [{{files: [{place}/targets.json], refresh_interval: 500ms}}]
"""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server; what it scrapes may change at any time."""

    place: Path
    port: int

    def scrape(self, nodes: Mapping[str, int]) -> None:
        """Scrape these ports of the loopback, each under the name of its node."""
        told = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": node}}
            for node, port in nodes.items()
        ]
        new = self.place / "targets.json.new"
        new.write_text(json.dumps(told))
        new.rename(self.place / "targets.json")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives at this instant."""
        asked = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self._get(f"/api/v1/query?{asked}")["result"]
        return found

    def alerts(self) -> dict[tuple[str, str], str]:
        """The state of each alert that is pending or firing, by its name and node."""
        return {
            (one["labels"]["alertname"], one["labels"].get("instance", "")): one["state"]
            for one in self._get("/api/v1/alerts")["alerts"]
        }

    def problems(self) -> list[str]:
        """What any rule could not be evaluated for."""
        groups = self._get("/api/v1/rules")["groups"]
        return [
            one["lastError"] for group in groups for one in group["rules"] if "lastError" in one
        ]

    def is_ready(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200

    def _get(self, path: str) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        assert answer.status == 200, (path, body)
        return json.loads(body)["data"]


@contextmanager
def running_prometheus(place: Path, every: str = EVERY) -> Iterator[Prometheus]:
    """One that scrapes nobody yet; ``every`` is how often it will."""
    place.mkdir()
    (port,) = free_ports(1)
    for file in (RECORDINGS, ALERTS):
        (place / file.name).write_text(quick(file.read_text()))
    (place / "prometheus.yml").write_text(_CONFIG.format(place=place, every=every))
    server = Prometheus(place, port)
    server.scrape({})
    command = ["prometheus", f"--config.file={place}/prometheus.yml"]
    command += [f"--storage.tsdb.path={place}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until_it_listens(port, process)
        until(server.is_ready)
        yield server
    finally:
        end(process)
