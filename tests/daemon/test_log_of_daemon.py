"""The log of a whole daemon: what is in it at debug, and what never is."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

from tests.api.origin import http_origin
from tests.daemon.test_network import ask
from tests.polling import until
from tests.system.daemon import Client, Daemon, running
from weightd.daemon.repeats import LINES_MAX

TOKEN = "token-hush-token-hush-token"
SIGNATURE = "signature-hush"
PASSWORD = "password-hush"
CREDENTIAL = "credential-hush"
SECRETS = (TOKEN, SIGNATURE, PASSWORD, CREDENTIAL)

SETTINGS = """
[credentials]
weights = "{credential}"

[[preload]]
key = "preloaded"
source = "{preload}"
"""


def lines(daemon: Daemon) -> list[Any]:
    """Each line of the log, which is JSON, behind its priority if it goes to the journal."""
    return [json.loads(line.lstrip("<34567>")) for line in daemon.log.read_text().splitlines()]


def told(daemon: Daemon, message: str) -> list[Any]:
    return [line for line in lines(daemon) if line["message"] == message]


def test_no_secret_is_ever_logged(root: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "credential").write_text(CREDENTIAL)
    with http_origin() as origin:
        signed = f"{origin.file('m.bin', bytes(10_000))}?X-Amz-Signature={SIGNATURE}"
        user = signed.replace("http://", f"http://user:{PASSWORD}@")
        absent = f"{origin.url}/absent.bin?X-Amz-Signature={SIGNATURE}"
        config = tmp_path / "weightd.toml"
        config.write_text(SETTINGS.format(credential=tmp_path / "credential", preload=signed))
        options = [
            *("--log-format", "json", "--log-level", "debug", "--config", str(config)),
            *("--api-listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token")),
        ]
        with running(root, capacity=10_000_000, options=options, ready=False) as daemon:
            until(lambda: told(daemon, "ready"), daemon.said)
            for number, source in enumerate((signed, user, absent, [absent, signed])):
                asked = {"key": f"m{number}", "source": source, "credential": "weights"}
                daemon.client.call("POST", "/v1/fetch?wait=30", json.dumps(asked).encode())
            port = daemon.port()
            assert ask(port, TOKEN, "GET", "/v1/models") == (200, "")
            assert ask(port, SIGNATURE, "GET", "/v1/models") == (401, "unauthorized")
            daemon.client.call("GET", f"/v1/models/m?token={TOKEN}")
            daemon.client.call("GET", "/v1/models/m", headers={"Authorization": f"Bearer {TOKEN}"})
            config.write_text(config.read_text().replace("preloaded", "another"))
            daemon.process.send_signal(signal.SIGHUP)
            until(lambda: told(daemon, "SIGHUP: a setting has changed"), daemon.said)
            assert daemon.stop() == 0
        log = daemon.log.read_text()
        assert not [secret for secret in SECRETS if secret in log]
        assert {line["key"] for line in told(daemon, "fetched")} >= {"m0", "m3"}
        assert told(daemon, "fetch-failed")
        (unauthorized,) = told(daemon, "a request was refused")
        assert unauthorized["code"] == "unauthorized"
        assert len(told(daemon, "request")) >= 7
        assert [line["message"] for line in lines(daemon)][-1] == "stopped"


def test_debugging_by_a_signal_priorities_and_the_bound_on_a_storm(root: Path) -> None:
    # The log is the journal if the daemon is told its device and inode.
    log = root.parent / "weightd.log"
    log.touch()
    journal = f"{log.stat().st_dev}:{log.stat().st_ino}"
    replicas = root.parent / "replica.sock"
    options = ["--log-format", "json", "--replica-socket", str(replicas)]
    environ = {"JOURNAL_STREAM": journal}
    with running(
        root, capacity=10_000_000, environ=environ, options=options, ready=False
    ) as daemon:
        daemon.wait_listening()
        until(lambda: daemon.client.call("GET", "/readyz").status == 200)
        assert not told(daemon, "request")
        for count, level in enumerate(("debug", "info"), 1):
            daemon.process.send_signal(signal.SIGUSR1)
            until(partial(switched, daemon, count), daemon.said)
            assert switches(daemon)[-1]["log_level"] == level
            daemon.client.call("GET", "/v1/status")
        assert len(told(daemon, "request")) == 1
        for _ in range(LINES_MAX + 20):
            assert Client(replicas).call("DELETE", "/v1/models/m").status == 403
        assert len(told(daemon, "a request was refused")) == LINES_MAX
        assert daemon.stop() == 0
        (left_out,) = told(daemon, "lines were left out")
        assert (left_out["lines"], left_out["like"]) == (20, "a request was refused")
        priorities = {line[:3] for line in log.read_text().splitlines()}
        assert priorities == {"<4>", "<6>", "<7>"}


def switched(daemon: Daemon, times: int) -> bool:
    return len(switches(daemon)) == times


def switches(daemon: Daemon) -> list[Any]:
    return [line for line in lines(daemon) if "log_level" in line]
