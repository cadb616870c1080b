"""Settings held against this machine: every problem at once, by name, place and accepted form."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.daemon import running
from weightd.cli.exits import Exit
from weightd.cli.main import main
from weightd.settings import SettingsError, load_fit, options, values
from weightd.settings.variables import misspelt

NAMES = [option.name for option in options()]
VARIABLES = {option.name: option.variable for option in options()}
FLAGS = {option.name: option.flag for option in options()}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("WEIGHTD_") or name in ("CACHE_DIRECTORY", "RUNTIME_DIRECTORY"):
            monkeypatch.delenv(name)


def problems(flags: dict[str, str], tmp_path: Path) -> list[str]:
    root = {"root": str(tmp_path / "cache"), "socket": str(tmp_path / "s")}
    with pytest.raises(SettingsError) as refused:
        load_fit(root | flags, tmp_path / "weightd.toml")
    return list(refused.value.problems)


# -- Bad in every way that there is ------------------------------------------------------

WRONG: dict[str, list[str]] = {
    "root": ["/etc/hostname", "/dev/null", "/proc/self/cwd"],
    "require_mount": ["perhaps"],
    "capacity": ["lots", "0", "101%", "-1"],
    "min_free": ["some", "200%"],
    "socket": ["/etc/hostname", "/etc/hostname/s", "/" + "x" * 200],
    "socket_mode": ["rw", "888"],
    "socket_group": ["no-such-group-here"],
    "replica_socket": ["/etc/hostname", "/" + "y" * 200],
    "listen": ["everywhere", "127.0.0.1:99999"],
    "token_file": ["/no/such/token", "/etc", "/dev/null", "/" + "x" * 300],
    "file_mode": ["0644", "x"],
    "group": ["no-such-group-here"],
    "idle_timeout": ["0", "soon"],
    "drain_timeout": ["-1s", "late"],
    "orphan_grace": ["long"],
    "puts_limit": ["0", "many"],
    "fetch_concurrency": ["99"],
    "fetch_bandwidth": ["0", "fast"],
    "partial_ttl": ["1 fortnight"],
    "allow_origins": ["ftp://x/", "org"],
    "import_roots": ["relative", "/no/such/root", "/etc/hostname"],
    "ca_file": ["/no/such.pem", "/etc/hostname", "/dev/null", "/" + "x" * 300],
    "credentials": ["hub", "hub=/no/such/credential", "hub=relative", "hub=/etc"],
    "node_labels": ["/etc/.hidden", "/etc/labels/"],
    "textfile": ["/etc/.weightd.prom", "/etc/weightd.txt"],
    "policy": ["lfu"],
    "log_format": ["xml"],
    "log_level": ["loud"],
}
"""Values that are wrong as they stand, or on any machine."""


def test_wrong_values_are_known_for_every_setting() -> None:
    # The file itself, what only the file has, and what is wrong only beside another.
    assert set(NAMES) - set(WRONG) == {"config", "preload", "api_listen"}


@st.composite
def wrong(draw: st.DrawFn) -> dict[str, tuple[str, str]]:
    """Some settings, each with a wrong value, and where it is written."""
    names = draw(st.lists(st.sampled_from(sorted(WRONG)), min_size=1, unique=True))
    places = st.sampled_from(["file", "variable", "flag"])
    return {name: (draw(st.sampled_from(WRONG[name])), draw(places)) for name in names}


@given(wrong())
@settings(max_examples=25, deadline=None)
def test_so_many_wrong_settings_are_so_many_named_problems(
    tmp_path_factory: pytest.TempPathFactory, bad: dict[str, tuple[str, str]]
) -> None:
    place = tmp_path_factory.getbasetemp()
    config = place / "bad.toml"
    config.write_text(
        "".join(f'{name} = "{value}"\n' for name, (value, where) in bad.items() if where == "file")
    )
    flags = {name: value for name, (value, where) in bad.items() if where == "flag"}
    good = {"root": str(place / "cache"), "socket": str(place / "socket")}
    flags = {name: value for name, value in good.items() if name not in bad} | flags
    with pytest.MonkeyPatch.context() as environment:
        for name, (value, where) in bad.items():
            if where == "variable":
                environment.setenv(VARIABLES[name], value)
        with pytest.raises(SettingsError) as refused:
            load_fit(flags, config)
    told = {}
    for problem in refused.value.problems:
        name, _, rest = problem.partition(" (")
        told[name] = rest.partition("): ")[0]
        assert "\n" not in problem
    written = {"file": str(config)}
    assert told == {
        name: written.get(where) or (VARIABLES if where == "variable" else FLAGS)[name]
        for name, (_, where) in bad.items()
    }
    assert len(refused.value.problems) == len(bad)


# -- What only this machine tells ----------------------------------------------------------


def test_written_wrong_and_unfit_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGHTD_CAPCITY", "1GB")
    (tmp_path / "weightd.toml").write_text('lisen = "none"\nca_file = "/etc/hostname"\n')
    flags = {
        "log_level": "loud",
        "min_free": "1",
        "token_file": "/no/such",
        "credentials": f"one={tmp_path}/one,two={tmp_path}/two",
        "import_roots": f"{tmp_path},{tmp_path}/none",
        "replica_socket": str(tmp_path / "s"),
    }
    told = problems(flags, tmp_path)
    assert sorted(one.partition(":")[0] for one in told) == sorted(
        [
            f"lisen (in {tmp_path}/weightd.toml)",
            "WEIGHTD_CAPCITY",
            "token_file (--token-file)",
            "log_level (--log-level)",
            "replica_socket (--replica-socket)",
            f"ca_file ({tmp_path}/weightd.toml)",
            "credentials (--credentials)",
            "credentials (--credentials)",
            "import_roots (--import-roots)",
        ]
    )


@pytest.mark.parametrize(
    ("listen", "api", "clash"),
    [
        ("127.0.0.1:9777", "127.0.0.1:9777", True),
        ("0.0.0.0:9777", "127.0.0.1:9777", True),
        ("127.0.0.1:9777", "0.0.0.0:9777", True),
        ("127.0.0.2:9777", "127.0.0.1:9777", False),
        ("127.0.0.1:9777", "127.0.0.1:9778", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("[::]:9777", "0.0.0.0:9777", False),
        ("none", "127.0.0.1:9777", False),
    ],
)
def test_two_listeners_have_two_ports(tmp_path: Path, listen: str, api: str, clash: bool) -> None:
    (tmp_path / "token").write_text("x" * 32)
    flags = {
        "root": str(tmp_path / "cache"),
        "listen": listen,
        "api_listen": api,
        "token_file": str(tmp_path / "token"),
    }
    if clash:
        (told,) = problems(flags, tmp_path)
        assert told == (
            f"api_listen (--api-listen): {api} is taken by listen ({listen}); "
            "give each its own port"
        )
    else:
        load_fit(flags, tmp_path / "weightd.toml")


@pytest.mark.parametrize(
    ("place", "of"),
    [
        ("cache/state.db", "in the root"),
        ("cache/models/one.prom", "in the root"),
        ("link/state.db", "in the root"),
        ("s", "the path of socket as well"),
        ("r", "the path of replica_socket as well"),
        ("weightd.toml", "the path of config as well"),
        ("token", "the path of token_file as well"),
        ("hub", "the path of the credential hub as well"),
    ],
)
def test_what_is_written_for_others_is_at_no_other_place(
    tmp_path: Path, place: str, of: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    (tmp_path / "weightd.toml").write_text("")
    for name in ("token", "hub"):
        (tmp_path / name).write_text("0123456789abcdef")
    flags = {
        "config": str(tmp_path / "weightd.toml"),
        "replica_socket": str(tmp_path / "r"),
        "token_file": str(tmp_path / "token"),
        "credentials": f"hub={tmp_path}/hub",
        "node_labels": str(tmp_path / place),
    }
    (problem,) = problems(flags, tmp_path)
    assert problem.startswith(f"node_labels (--node-labels): {tmp_path / place} is ")
    assert of in problem
    if place.endswith(".prom"):
        flags["textfile"] = flags.pop("node_labels")
        (problem,) = problems(flags, tmp_path)
        assert problem.startswith("textfile (--textfile): ")


@pytest.mark.needs("root")
def test_what_another_user_may_not_read_or_write_is_told() -> None:
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        here.chmod(0o755)
        secret, closed = here / "secret", here / "closed"
        secret.write_text("x" * 32)
        secret.chmod(0o600)
        closed.mkdir(mode=0o700)
        flags = {"root": str(here), "credentials": f"hub={secret}", "import_roots": str(closed)}
        with as_user(65534):
            told = problems(flags, here)
    assert {one.partition(" ")[0] for one in told} == {"root", "credentials", "import_roots"}
    assert all("(uid 65534)" in one for one in told)


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", ["token_file", "ca_file"])
def test_what_is_where_another_user_may_not_look_is_told(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        here.chmod(0o755)
        closed = here / "closed"
        closed.mkdir(mode=0o700)
        (closed / "file").write_text("x" * 32)
        with as_user(65534):
            told = problems({"root": str(here), name: str(closed / "file")}, here)
    # The root is root's here.
    assert {one.partition(" ")[0] for one in told} == {"root", name}


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Be another user for the block, as far as the kernel's checks of files go."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.needs("root")
def test_a_services_credentials_are_left_to_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        here.chmod(0o755)
        monkeypatch.setattr(values, "CREDENTIALS", here)
        kept = here / "weightd.service"
        kept.mkdir(mode=0o700)
        (kept / "token").write_text("short")
        credentials = f"hub={kept / 'hub'}"
        flags = {"root": place, "token_file": f"{kept}/token", "credentials": credentials}
        with as_user(65534):
            loaded, _ = load_fit(flags, here / "none.toml", taken=True)
            # Of a service that has none there is nothing to be left to it.
            told = problems(flags | {"token_file": f"{place}/other.service/token"}, here)
        # Whoever sees them looks at them.
        seen = problems(flags, here)
    assert loaded.settings.token_file == kept / "token"
    assert any("other.service" in one for one in told)
    assert {one.partition(" ")[0] for one in seen} == {"token_file", "credentials"}


def test_a_check_says_the_same_as_a_start_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        *("--root", str(tmp_path / "cache"), "--socket", str(tmp_path / "run" / "s")),
        *("--config", str(tmp_path / "weightd.toml")),
    ]
    (tmp_path / "weightd.toml").write_text('import_roots = "/no/such/root"\nputs_limit = 0\n')
    said = []
    for more in (["--check"], []):
        assert main(["serve", *given, *more]) == Exit.USAGE
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert [line.split()[1] for line in said[0].err.splitlines()] == ["puts_limit", "import_roots"]
    (tmp_path / "weightd.toml").write_text('import_roots = "/etc"\n')
    assert main(["serve", *given, "--check"]) == Exit.OK
    out, err = capsys.readouterr()
    assert not err
    assert {line.split()[0] for line in out.splitlines()} >= set(NAMES)
    assert os.listdir(tmp_path) == ["weightd.toml"]


def test_a_check_beside_a_daemon_that_runs_is_no_problem(root: Path) -> None:
    with running(root, capacity=10_000_000) as daemon:
        flags = {"root": str(root), "socket": str(daemon.socket), "capacity": "10MB"}
        loaded, budget = load_fit(flags, root.parent / "none.toml")
        assert (loaded.settings.root, budget.capacity) == (root, 10_000_000)


# -- Variables -----------------------------------------------------------------------------

OF_KUBERNETES = {
    "WEIGHTD_SERVICE_HOST": "10.0.0.1",
    "WEIGHTD_SERVICE_PORT": "9777",
    "WEIGHTD_SERVICE_PORT_LISTEN": "9777",
    "WEIGHTD_PORT": "tcp://10.0.0.1:9777",
    "WEIGHTD_PORT_9777_TCP": "tcp://10.0.0.1:9777",
    "WEIGHTD_PORT_9777_TCP_PROTO": "tcp",
    "WEIGHTD_PORT_9777_TCP_PORT": "9777",
    "WEIGHTD_PORT_9777_TCP_ADDR": "10.0.0.1",
}
SERVICES = ("", "LISTEN_", "ROOTS_", "API_LISTEN_", "CAPACITY_", "SOCKETS_")


@pytest.mark.parametrize("service", SERVICES)
def test_what_kubernetes_makes_of_any_service_is_not_ours(service: str) -> None:
    made = {
        name.replace("WEIGHTD_", f"WEIGHTD_{service}"): OF_KUBERNETES[name]
        for name in OF_KUBERNETES
    }
    assert misspelt(made, NAMES) == {}


def test_what_the_commands_take_and_give_is_not_ours() -> None:
    others = ("WAIT", "PATH", "KEY", "HOLDER", "FAILPOINT", "PATH_ROOT", "KEY_GROUP", "POWER_CACHE")
    assert misspelt({f"WEIGHTD_{name}": "x" for name in others}, NAMES) == {}
    assert misspelt(dict.fromkeys(VARIABLES.values(), "x"), NAMES) == {}
    assert misspelt({"CAPCITY": "1GB", "OTHER_ROOTS": "/"}, NAMES) == {}


def slips(name: str) -> Iterator[str]:
    """A setting's name with one letter too few, twice, or in its neighbour's place."""
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[:at] + name[at] + name[at:]
        yield name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :]


@pytest.mark.parametrize("name", NAMES)
def test_any_slip_of_one_letter_is_told_with_what_was_meant(name: str) -> None:
    for slip in set(slips(name)) - set(NAMES) - {""}:
        variable = f"WEIGHTD_{slip.upper()}"
        assert misspelt({variable: "x"}, NAMES) == {variable: name}, slip
