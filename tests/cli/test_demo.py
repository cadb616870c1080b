"""`make run` shows what happens, to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import weightd
from weightd.cli.demo import STORY

HOUSE = Path(weightd.__file__).parents[1]
COMMAND = [sys.executable, "-m", "weightd.cli.demo"]


def test_the_example_happens(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "WEIGHTD_CAPACITY": "1MB"}
    ran = subprocess.run(
        [*COMMAND, "--once"], capture_output=True, text=True, cwd=HOUSE, env=environ, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "4. Put 145" in ran.stdout
    assert "used 285 MB of 300 MB; evictions 1; here: llama-70b 140 MB, qwen-72b 145 MB" in (
        ran.stdout
    )
    assert "--capacity 300MB --min-free 0 --listen 127.0.0.1:0" in ran.stdout
    assert "503 blocked" in ran.stdout
    assert "204 replica-1 pins llama-70b no more" in ran.stdout
    assert "being unlinked" not in ran.stdout
    assert "Held by replica-1" in ran.stdout
    assert "413 too-large" in ran.stdout
    assert f"\n{len(STORY)}. " in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_daemon_goes_on_until_it_is_interrupted(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    # What a shell starts in the background ignores the signal, and so would what that starts.
    command = ["env", "--default-signal=INT", *COMMAND]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=HOUSE, env=environ
    ) as running:
        assert running.stdout is not None
        while not running.stdout.readline().startswith("The daemon goes on"):
            assert running.poll() is None
        assert running.stdout.readline().startswith("Call it from another shell, with SOCKET=")
        running.send_signal(signal.SIGINT)
        assert running.stdout.read().strip() == "ended"
        assert running.wait() == 0
    assert list(tmp_path.iterdir()) == []
