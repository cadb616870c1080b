"""nginx: a static file server with ranges, one without, and one with a certificate."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.frozen import frozen
from tests.origins.servers.ports import end, free_ports, wait_until_it_listens
from tests.polling import until

TOKEN: Final = "nginx-token-that-nobody-may-see"
"""What must be shown below ``/private/`` of the server without ranges."""

_ALONE: Final = "Active connections: 1 "

_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {base}/nginx.pid;
error_log {base}/error.log;
events {{ worker_connections 256; }}
http {{
  log_format one '$request_method $uri $status $http_range $body_bytes_sent';
  access_log {base}/access.log one;
  client_body_temp_path {base}/1; proxy_temp_path {base}/2; fastcgi_temp_path {base}/3;
  uwsgi_temp_path {base}/4; scgi_temp_path {base}/5;
  sendfile on; tcp_nopush on;
  {limit}
  server {{ listen 127.0.0.1:{port}; root {root};
    location = /-busy {{ stub_status; access_log off; keepalive_timeout 0; }} }}
  server {{ listen 127.0.0.1:{whole}; root {root}; max_ranges 0;
    location /private/ {{ if ($http_authorization != "Bearer {token}") {{ return 403; }} }} }}
  {tls}
}}
"""
_TLS = """
  server {{ listen 127.0.0.1:{port} ssl; root {root};
    location /to-http/ {{ return 302 http://localhost/; }}
    ssl_certificate {certificate}; ssl_certificate_key {key}; }}
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """One request and how much of a body was sent."""

    method: str
    path: str
    status: int
    range: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Nginx:
    """A running server and the directory it serves."""

    root: Path
    log: Path
    port: int
    whole_port: int
    tls_port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def without_ranges(self) -> str:
        """The same files from a server that gives whole ones only."""
        return f"http://127.0.0.1:{self.whole_port}"

    @property
    def https(self) -> str:
        return f"https://localhost:{self.tls_port}"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it say nothing; whoever connects waits."""
        with frozen(self.process):
            yield

    def answered(self) -> list[Answered]:
        """Every answer, once nobody is connected any more; the order is that of their ends."""
        until(lambda: _ALONE in self._busy(), self._busy)
        lines = (line.split(" ") for line in self.log.read_text().splitlines())
        return [
            Answered(method, path, int(status), range, int(sent))
            for method, path, status, range, sent in lines
        ]

    def _busy(self) -> str:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as peer:
            peer.request("GET", "/-busy")
            return peer.getresponse().read().decode()


@contextmanager
def running_nginx(
    base: Path, certificate: tuple[Path, Path] | None = None, rate: int = 0
) -> Iterator[Nginx]:
    """``certificate`` is a certificate for localhost and its key.

    Each answer takes ``rate`` bytes a second, evenly; with 0 what it can.
    """
    root = base / "served"
    root.mkdir(parents=True)
    # Its worker runs as whom it likes.
    for directory in (base, root):
        directory.chmod(0o755)
    port, whole, tls = free_ports(3)
    secured = ""
    if certificate is not None:
        secured = _TLS.format(port=tls, root=root, certificate=certificate[0], key=certificate[1])
    # In small pieces, since it pauses after each piece and bounds none of them.
    limit = f"limit_rate {rate}; sendfile_max_chunk 32k;" if rate else ""
    config = base / "nginx.conf"
    config.write_text(
        _CONFIG.format(
            base=base, root=root, port=port, whole=whole, tls=secured, limit=limit, token=TOKEN
        )
    )
    process = subprocess.Popen(
        ["nginx", "-e", f"{base}/error.log", "-c", config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_it_listens(port, process)
        yield Nginx(root, base / "access.log", port, whole, tls, process)
    finally:
        end(process)
