"""A daemon whose whole API is on the network: by its token, which a SIGHUP replaces."""

from __future__ import annotations

import http.client
import json
import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.test_start import refused
from tests.polling import until
from tests.system.daemon import Daemon, running

FIRST, SECOND = "first-token-of-this-daemon", "second-token-of-this-daemon"


def ask(port: int, token: str | None, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    """The status, and the code of a refusal."""
    shown = {} if token is None else {"Authorization": f"Bearer {token}"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as peer:
        peer.request(method, path, body=body or None, headers=shown)
        answer = peer.getresponse()
        read = answer.read()
        return answer.status, json.loads(read)["code"] if answer.status >= 400 else ""


def said_so(daemon: Daemon, times: int) -> bool:
    return daemon.said().count("holds no token") >= times


def test_the_token_opens_the_api_and_a_hangup_replaces_it(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{FIRST}\n")
    file.chmod(0o600)
    options = ["--listen", "none", "--api-listen", "127.0.0.1:0", "--token-file", str(file)]
    with running(root, capacity=10_000_000, options=options) as daemon:
        port = daemon.port()
        assert ask(port, None, "GET", "/healthz") == (200, "")
        assert ask(port, None, "PUT", "/v1/models/m", bytes(100_000)) == (401, "unauthorized")
        assert ask(port, SECOND, "PUT", "/v1/models/m", bytes(100_000)) == (401, "unauthorized")
        assert ask(port, FIRST, "PUT", "/v1/models/m", bytes(100_000)) == (201, "")
        assert ask(port, FIRST, "PUT", "/v1/pins/h/m") == (201, "")
        file.write_text(SECOND)
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: ask(port, SECOND, "GET", "/v1/models/m") == (200, ""))
        assert ask(port, FIRST, "GET", "/v1/models/m") == (401, "unauthorized")
        # What is no token any more changes nothing.
        for count, wrong in enumerate(("short", "x" * 5000), 1):
            file.write_text(wrong)
            daemon.process.send_signal(signal.SIGHUP)
            until(partial(said_so, daemon, count))
            assert ask(port, SECOND, "GET", "/v1/pins") == (200, "")
        assert daemon.stop() == 0
        assert FIRST not in daemon.said()
        assert SECOND not in daemon.said()


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o644, True)])
def test_a_token_that_everybody_may_read_is_told_of(
    root: Path, tmp_path: Path, mode: int, told: bool
) -> None:
    file = tmp_path / "token"
    file.write_text(FIRST)
    file.chmod(mode)
    options = ["--log-format", "json", "--api-listen", "127.0.0.1:0", "--token-file", str(file)]
    with running(root, capacity=10_000_000, options=options, ready=False) as daemon:
        until(lambda: '"message": "ready"' in daemon.said())
        assert daemon.stop() == 0
        assert (f"everybody here may read the token in {file}" in daemon.said()) == told


def test_without_a_token_it_does_not_start(root: Path) -> None:
    code, lines = refused(root, "--api-listen", "127.0.0.1:0")
    assert code != 0
    assert any("api_listen" in line and "token_file" in line for line in lines)
