"""The command: what it prints, how it exits, and how little it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weightd
from weightd.cli.exits import Exit
from weightd.cli.main import COMMANDS, main
from weightd.settings import options


@pytest.mark.parametrize("arguments", [["--version"], ["serve", "--version"]])
def test_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"weightd {weightd.__version__}\n"


@pytest.mark.parametrize("arguments", [["sreve"], ["serve", "--nonsense"], ["serve", "x"]])
def test_usage_errors_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == Exit.USAGE
    assert "usage: weightd" in capsys.readouterr().err


def test_alone_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Exit.USAGE
    said = capsys.readouterr().err
    assert all(name in said and does in said for name, does in COMMANDS.items())


@pytest.mark.parametrize("typed", [["--capcity=1GB"], ["--capcity", "1GB"]])
def test_a_mistyped_flag_is_recognised(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--check", *typed])
    advice = f"unrecognized argument {typed[0]}, did you mean --capacity?"
    assert capsys.readouterr().err.splitlines()[-1] == f"weightd serve: error: {advice}"


def test_flags_are_never_abbreviated() -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--check", "--cap", "1GB"])


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said and does in said for name, does in COMMANDS.items())


def test_help_of_serve_documents_every_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for option in options():
        described = f"{option.description} Default: {option.default}."
        if option.file_only:
            assert f"In the file alone: {option.name}. {described}" in said
        else:
            assert f"{option.flag} {option.word} {described}" in said


def test_check_tells_that_the_root_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["serve", "--check", "--root", str(tmp_path / "file")]) == Exit.USAGE
    said = capsys.readouterr()
    assert (said.out, said.err.count("is not a directory")) == ("", 1)


def test_check_prints_what_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "cache"
    assert main(["serve", "--check", "--root", str(root), "--capacity", "1GB"]) == Exit.OK
    said = capsys.readouterr().out
    assert all(option.name in said for option in options())
    assert "1GB = 1000000000 bytes  (--capacity)" in said
    assert not root.exists()


def test_what_is_wrong_has_an_errors_priority_in_the_journal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stream:
        found = os.fstat(stream.fileno())
        environ = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        command = [sys.executable, "-m", "weightd", "serve", "--check", "--capacity", "much"]
        ran = subprocess.run(command, stderr=stream, env=environ, check=False)
    assert ran.returncode == Exit.USAGE
    (line,) = log.read_text().splitlines()
    assert line.startswith("<3>weightd: capacity (--capacity): 'much' is not")


def test_check_tells_that_the_budget_cannot_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "cache"
    main(["serve", "--check", "--root", str(root), "--capacity", "100%", "--min-free", "50%"])
    assert " of the budget can be used now: others occupy " in capsys.readouterr().out
    main(["serve", "--check", "--root", str(root), "--capacity", "1", "--min-free", "0"])
    assert "note: " not in capsys.readouterr().out


def test_check_may_be_read_in_part() -> None:
    read, written = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "weightd", "serve", "--check", "--capacity", "1GB"],
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=Path(weightd.__file__).parents[1],
    )
    os.close(written)
    assert (ran.returncode, ran.stderr) == (Exit.OK, "")


def test_check_prints_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--check", "--capacity", "0", "--listen", "?"]) == Exit.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.split()[:2] for line in printed.err.splitlines()] == [
        ["weightd:", "capacity"],
        ["weightd:", "listen"],
    ]


def test_exit_codes_are_the_documented_ones() -> None:
    assert {name: code for name, code in vars(Exit).items() if name.isupper()} == {
        "OK": 0,
        "ERROR": 1,
        "USAGE": 2,
        "NOT_RESIDENT": 3,
        "TOO_LARGE": 4,
        "BLOCKED": 5,
        "UNREACHABLE": 6,
        "INTERRUPTED": 130,
    }


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a run of the command loads."""
    program = (
        "import sys\n"
        "from weightd.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(weightd.__file__).parents[1],
        env={"PATH": os.environ["PATH"]},
    )
    return set(ran.stderr.split())


def test_version_loads_no_settings() -> None:
    assert not {"pydantic", "fastapi", "uvicorn", "asyncio"} & loaded_by("--version")


def test_check_loads_no_server() -> None:
    loaded = loaded_by("serve", "--check", "--root", "/no-such-directory/cache")
    assert "weightd.settings" in loaded
    assert not {"weightd.daemon", "fastapi", "uvicorn", "prometheus_client"} & loaded


def test_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "weightd", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(weightd.__file__).parents[1],
    )
    assert ran.stdout == f"weightd {weightd.__version__}\n"
