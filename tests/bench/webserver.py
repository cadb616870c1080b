"""nginx on a unix socket: files out by sendfile, files in by WebDAV's PUT."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.commands import absent
from tests.bench.processes import Server, server

_CONFIG: Final = """
daemon off; master_process off; worker_processes 1; pid {base}/nginx.pid;
error_log {base}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {base}/1; proxy_temp_path {base}/2; fastcgi_temp_path {base}/3;
  uwsgi_temp_path {base}/4; scgi_temp_path {base}/5;
  sendfile on; tcp_nopush on;
  client_max_body_size 0; client_body_buffer_size 512k;
  server {{ listen unix:{socket}; root {root}; {methods}
    location = /-ready {{ return 204; }} }}
}}
"""


@contextmanager
def nginx(base: Path, socket: Path, root: Path, *, writes: bool = False) -> Iterator[Server]:
    """nginx with the files below ``root``, where it also puts some if it ``writes``.

    What arrives is kept in ``base`` until it is whole: on the filesystem of
    ``root``, so that it is moved and not copied; and in larger pieces than
    nginx would by itself, with which it is a quarter faster.
    """
    base.mkdir(parents=True)
    config = base / "nginx.conf"
    methods = "dav_methods PUT;" if writes else ""
    config.write_text(_CONFIG.format(base=base, socket=socket, root=root, methods=methods))
    command = ["nginx", "-e", f"{base}/error.log", "-c", str(config)]
    with server(command, socket, "/-ready") as running:
        yield running


def without_dav() -> str:
    """Why nginx cannot take a PUT here; "" when it can."""
    if absent("nginx"):
        return "there is no nginx here"
    done = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=False)
    return "" if "http_dav_module" in done.stderr else "nginx was built without its dav module"
