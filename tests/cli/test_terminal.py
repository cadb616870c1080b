"""What a person sees: a real terminal of 80 and of 200 columns."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.origin import http_origin
from tests.cli.commands import Shell
from tests.cli.conftest import daemon_at
from tests.cli.test_run import put
from tests.polling import until
from tests.system.daemon import Daemon
from weightd.cli.budget import MEANINGS, Part, short_legend
from weightd.cli.tables import Column, table
from weightd.cli.terminal import columns_of

REVISION = "0e9e39f249a16976918f6564b8830bc894c89659"
LONG = "terminal/Llama-3.1-70B-Instruct@" + REVISION
PROMPT = "ready>"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One of this file's own: what others left of theirs would fill the screen."""
    with daemon_at(tmp_path_factory.mktemp("node")) as daemon:
        yield daemon


class Terminal:
    """A bash in a tmux of its own."""

    def __init__(self, place: Path, shell: Shell, columns: int, rows: int) -> None:
        self._server = ("tmux", "-S", str(place / "tmux"), "-f", "/dev/null")
        environment = " ".join(
            shlex.quote(f"{name}={value}") for name, value in shell.environment.items()
        )
        command = (
            f"env -i TERM=$TERM {environment} PS1={shlex.quote(PROMPT)} bash --norc --noprofile"
        )
        self._tmux(
            *("new-session", "-d", "-x", str(columns), "-y", str(rows)),
            command,
        )
        self.shell = shell
        until(lambda: PROMPT in self.text(), self.text)

    def _tmux(self, *given: str) -> str:
        ran = subprocess.run(
            [*self._server, *given], capture_output=True, text=True, check=True, timeout=60
        )
        return ran.stdout

    def type(self, *given: str) -> None:
        self._tmux("send-keys", shlex.join(self.shell.argv(*given)), "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def clear(self) -> None:
        self._tmux("send-keys", "clear", "Enter")
        until(lambda: self.lines() == [PROMPT], self.text)

    def text(self, colours: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(("-e",) if colours else ()))

    def lines(self) -> list[str]:
        return [line for line in self.text().splitlines() if line]

    def close(self) -> None:
        self._tmux("kill-server")


@contextmanager
def terminal(place: Path, shell: Shell, columns: int, rows: int = 30) -> Iterator[Terminal]:
    shown = Terminal(place, shell, columns, rows)
    try:
        yield shown
    finally:
        shown.close()


@pytest.mark.needs("tmux", "bash")
@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit(daemon: Daemon, shell: Shell, tmp_path: Path, columns: int) -> None:
    put(daemon.client, LONG)
    put(daemon.client, "terminal/short")
    with terminal(tmp_path, shell, columns) as shown:
        shown.type("ls", "terminal/*")
        until(lambda: "2 models" in shown.text(), shown.text)
        # No line was wrapped: each row begins with its key.
        rows = [line for line in shown.lines() if line.startswith("terminal/")]
        assert len(rows) == 2
        assert ("SOURCE" in shown.text()) == (columns == 200)
        assert (LONG in shown.text()) == (columns == 200)
        assert rows[0].startswith("terminal/Llama-3.1-70B-Instruct@0e9e")
        assert "\x1b[1mKEY" in shown.text(colours=True)
        # What looks once looks at the width as well.
        shown.clear()
        shown.type("top", "--once")
        until(lambda: shown.lines()[-1] == PROMPT and "terminal/short" in shown.text(), shown.text)
        # Other tests' holders stand beside them: the key may be cut, and no line is wrapped.
        assert len([line for line in shown.lines() if line.startswith("terminal/")]) >= 2


@pytest.mark.needs("tmux", "bash")
def test_top_lives_until_it_is_quit(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    put(daemon.client, LONG)
    with terminal(tmp_path, shell, 80, 24) as shown:
        shown.type("top", "--every", "0.2")
        until(lambda: LONG[:11] in shown.text(), shown.text)
        assert len(shown.lines()[2]) == 80
        put(daemon.client, "terminal/arrived")
        until(lambda: "terminal/arrived" in shown.text(), shown.text)
        shown.resize(200, 40)
        until(lambda: len(shown.lines()[2]) == 200, shown.text)
        assert LONG in shown.text()
        shown.press("q")
        # The screen is as it was before.
        until(lambda: shown.lines()[-1] == PROMPT, shown.text)
        assert "terminal/arrived" not in shown.text()
        shown.type("top", "--every", "0.2")
        until(lambda: "terminal/arrived" in shown.text(), shown.text)
        shown.press("C-c")
        until(lambda: shown.lines()[-1] == PROMPT, shown.text)
        assert "Traceback" not in shown.text()


@pytest.mark.needs("tmux", "bash")
def test_a_fetch_shows_a_bar(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    with http_origin() as origin, terminal(tmp_path, shell, 80) as shown:
        source = origin.listing("m", weights=bytes(100_000))
        origin.flowing.clear()
        shown.type("fetch", "terminal/fetched", source)
        until(lambda: "terminal/fetched  [" in shown.text(), shown.text)
        [line] = [line for line in shown.lines() if "terminal/fetched  [" in line]
        assert "0%  0 B of 100 kB" in line
        shown.press("C-c")
        until(lambda: "goes on without you" in shown.text(), shown.text)
        # The bar gave way to what was said.
        assert "terminal/fetched  [" not in shown.text()
        shown.clear()
        shown.type("fetch", "--list")
        until(lambda: "downloading" in shown.text(), shown.text)
        [row] = [line for line in shown.lines() if "downloading" in line]
        assert row.partition("downloading")[2].split()[:1] == ["0%"]
        origin.flowing.set()


@pytest.mark.needs("tmux", "bash")
def test_a_terminal_that_cannot_write_over_is_not_asked_to(daemon: Daemon, tmp_path: Path) -> None:
    put(daemon.client, LONG)
    with terminal(tmp_path, Shell(daemon.socket, {"TERM": "dumb"}), 80) as shown:
        shown.type("top")
        until(lambda: shown.lines()[-1] == PROMPT and LONG[:11] in shown.text(), shown.text)


def test_the_longest_texts_leave_room_for_what_tells_them_apart() -> None:
    columns = (Column("KEY", pliant=True), Column("HITS", right=True, rank=4))
    name = "/".join(["organisation"] * 6)
    keys = [f"{name}@{revision}{REVISION}" for revision in "ab"]
    for width in (40, 80, 120):
        titles, *rows = table(columns, [(key, "1") for key in keys], width)
        assert all(len(row) <= width for row in (titles, *rows))
        assert ["@a0e9" in rows[0], "@b0e9" in rows[1]] == [True, True]
        assert ("HITS" in titles) == (width > 80)


def test_what_is_wide_stays_in_its_column() -> None:
    columns = (Column("WHO", pliant=True), Column("SINCE"))
    assert table(columns, [("漢字", "1s"), ("python", "2s")], None) == [
        "WHO     SINCE",
        "漢字    1s",
        "python  2s",
    ]
    [_, row] = table(columns, [("漢" * 20, "1s")], 20)
    assert columns_of(row) <= 20
    assert row.endswith("1s")


def test_the_short_legend_takes_as_many_lines_as_it_needs() -> None:
    parts = [Part(name, 10**9) for name in MEANINGS]
    lines = short_legend(parts, 40, utf8=False, colours=False)
    assert all(len(line) <= 40 for line in lines)
    assert "  ".join(lines) == short_legend(parts, None, utf8=False, colours=False)[0]
    coloured = short_legend(parts, 40, utf8=False, colours=True)
    assert len(coloured) == len(lines)
