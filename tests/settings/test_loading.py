"""Flags, variables, file and defaults; and every problem at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weightd.origins.contract import CredentialFile
from weightd.settings import (
    Listen,
    SettingsError,
    Share,
    describe,
    load,
    options,
    resolve_budget,
)
from weightd.settings.options import Settings

EXAMPLES = {
    "config": "/etc/hostname.toml",
    "root": "/srv/models",
    "require_mount": "yes",
    "capacity": "400GB",
    "min_free": "10%",
    "socket": "/run/other.sock",
    "socket_mode": "0600",
    "socket_group": "0",
    "replica_socket": "/run/weightd/replica.sock",
    "listen": "none",
    "token_file": "/proc/sys/kernel/random/boot_id",
    "api_listen": "127.0.0.1:9778",
    "file_mode": "0440",
    "group": "0",
    "idle_timeout": "2m",
    "drain_timeout": "0",
    "orphan_grace": "1h",
    "puts_limit": "7",
    "fetch_concurrency": "2",
    "fetch_bandwidth": "500MB",
    "partial_ttl": "2d",
    "allow_origins": "hf://org/, https://mirror.example/",
    "import_roots": "/mnt/models,/mnt/more",
    "ca_file": "/etc/passwd",
    "credentials": "hub=/etc/weightd/hub.token,store=/etc/weightd/store.ini",
    "preload": "",
    "node_labels": "/etc/kubernetes/node-feature-discovery/features.d/weightd",
    "textfile": "/var/lib/node-exporter/weightd.prom",
    "policy": "LRU",
    "log_format": "json",
    "log_level": "debug",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("WEIGHTD_") or name in ("CACHE_DIRECTORY", "RUNTIME_DIRECTORY"):
            monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "weightd.toml"


def problems(flags: dict[str, str], config: Path) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load(flags, config)
    return list(refused.value.problems)


def test_examples_name_every_option() -> None:
    assert set(EXAMPLES) == {option.name for option in options()}


FILE_ONLY = [option.name for option in options() if option.file_only]


def test_only_a_list_of_tables_is_of_the_file_alone() -> None:
    assert FILE_ONLY == ["preload"]


@pytest.mark.parametrize("name", [one for one in EXAMPLES if one not in ("config", *FILE_ONLY)])
def test_every_option_is_flag_variable_and_key(
    name: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXAMPLES[name]
    if name == "api_listen":
        monkeypatch.setenv("WEIGHTD_TOKEN_FILE", EXAMPLES["token_file"])
    by_flag = load({name: text}, config).settings
    config.write_text(f'{name} = "{text}"\n')
    by_key = load({}, config).settings
    config.unlink()
    monkeypatch.setenv(f"WEIGHTD_{name.upper()}", text)
    by_variable = load({}, config).settings
    assert by_flag == by_key == by_variable
    assert getattr(by_flag, name) != Settings.model_fields[name].default or name == "policy"


def test_flag_over_variable_over_file_over_default(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('capacity = "1GB"\nmin_free = "1GB"\nlog_level = "error"\n')
    monkeypatch.setenv("WEIGHTD_CAPACITY", "2GB")
    monkeypatch.setenv("WEIGHTD_MIN_FREE", "2GB")
    loaded = load({"capacity": "3GB"}, config)
    settings = loaded.settings
    assert (settings.capacity, settings.min_free) == (Share("3GB"), Share("2GB"))
    assert (settings.log_level, settings.listen) == ("error", Listen("127.0.0.1", 9777))
    assert loaded.places == {
        "capacity": "--capacity",
        "min_free": "WEIGHTD_MIN_FREE",
        "log_level": str(config),
    }


def test_numbers_of_the_file_need_no_quotes(config: Path) -> None:
    config.write_text("capacity = 4096\nidle_timeout = 1.5\nputs_limit = 3\nmin_free = 0\n")
    settings = load({}, config).settings
    assert (settings.capacity, settings.idle_timeout) == (Share("4096"), 1.5)
    assert (settings.puts_limit, settings.min_free) == (3, Share("0"))


def test_mode_in_the_file_needs_quotes(config: Path) -> None:
    config.write_text("socket_mode = 660\n")
    (problem,) = problems({}, config)
    assert problem.startswith(f"socket_mode ({config}):")
    assert '"0660"' in problem


def test_empty_variable_is_no_setting(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHTD_CAPACITY", "")
    assert load({}, config).settings.capacity == Share("80%")


def test_variables_of_a_kubernetes_service_are_not_ours(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGHTD_PORT", "tcp://10.0.0.1:9777")
    monkeypatch.setenv("WEIGHTD_SERVICE_HOST", "10.0.0.1")
    assert load({}, config).places == {}


def test_every_problem_at_once_by_name_place_and_form(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('puts_limit = 0\ncapasity = "1GB"\nnonsense = 1\nlog_level = "loud"\n')
    monkeypatch.setenv("WEIGHTD_LISTEN", "everywhere")
    monkeypatch.setenv("WEIGHTD_POLICY", "lfu")
    found = problems({"capacity": "lots", "file_mode": "0644"}, config)
    assert sorted(found) == sorted(
        [
            f"capasity (in {config}): there is no such setting; did you mean capacity?",
            f"nonsense (in {config}): there is no such setting; the settings are "
            + ", ".join(name for name in EXAMPLES if name != "config"),
            (
                "capacity (--capacity): 'lots' is not a number of bytes such as 400GB, 1.5TiB or "
                "1073741824, or a percentage such as 80%"
            ),
            (
                "listen (WEIGHTD_LISTEN): 'everywhere' is not ADDRESS:PORT such as 127.0.0.1:9777 "
                "or [::1]:9777, or none"
            ),
            (
                "file_mode (--file-mode): '0644' lets published weights be written, or their owner "
                "not read them; give an octal mode without write or execute bits, such as 0444"
            ),
            f"puts_limit ({config}): 0 is not a number from 1 to 1024",
            "policy (WEIGHTD_POLICY): 'lfu' is not lru",
            f"log_level ({config}): 'loud' is not debug, info, warning or error",
        ]
    )


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "config"])
@pytest.mark.parametrize("given", ["[]", "{}", "true", '"\\u0000"', "[1, 2]", "2000-01-01"])
def test_nonsense_of_any_type_is_one_problem(name: str, given: str, config: Path) -> None:
    if (name, given) == ("require_mount", "true"):
        given = "7"  # the one setting for which a bare true is no nonsense
    if (name, given) in (("import_roots", "[]"), ("credentials", "{}"), ("preload", "[]")):
        given = "[7]"  # nothing of what they list is none
    config.write_text(f"{name} = {given}\n")
    (problem,) = problems({}, config)
    assert problem.startswith(f"{name} ({config}):")
    assert "\n" not in problem


def test_file_that_is_named_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert problems({"config": str(missing), "puts_limit": "x"}, tmp_path / "default.toml") == [
        f"config: there is no file {missing}; leave the setting out, or write the file",
        "puts_limit (--puts-limit): 'x' is not a number from 1 to 1024",
    ]


@pytest.mark.parametrize(
    "content",
    [
        *(b"capacity = ", b"\xff\xfe", b"[capacity]\nx = 1\n"),
        b"capacity = " + b"9" * 5000,
        b"capacity = " + b"[" * 5000,
    ],
)
def test_file_that_cannot_be_used(content: bytes, config: Path) -> None:
    config.write_bytes(content)
    assert len(problems({}, config)) == 1


def test_credential_with_a_name_that_cannot_be_told(config: Path) -> None:
    (problem,) = problems({"credentials": "hub=/a\udcff"}, config)
    assert problem.startswith(r"credentials (--credentials): 'hub=/a\udcff' is not a name and")


def test_file_without_an_end(config: Path) -> None:
    (problem,) = problems({"config": "/dev/zero"}, config)
    assert problem == "config: /dev/zero is longer than 1048576 bytes"


def test_file_in_the_home_of_nobody(config: Path) -> None:
    (problem,) = problems({"config": "~nobody-of-that-name/weightd.toml"}, config)
    assert problem.startswith("config (--config): ")


def test_config_does_not_name_another(config: Path) -> None:
    config.write_text('config = "other.toml"\n')
    assert len(problems({}, config)) == 1


def test_the_whole_api_on_the_network_needs_a_token(config: Path, tmp_path: Path) -> None:
    (problem,) = problems({"api_listen": "127.0.0.1:0"}, config)
    assert problem.startswith("api_listen (--api-listen): ")
    assert "token_file" in problem
    # One that is wrong itself is told of once.
    missing = {"api_listen": "127.0.0.1:0", "token_file": str(tmp_path / "none")}
    (problem,) = problems(missing, config)
    assert problem.startswith("token_file (--token-file): ")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"plugh", b"xyzzy plugh frotz", b"xyzzyplugh\nfrotzfrotz", b"\xff" * 20]
)
def test_a_file_without_a_token_is_refused_and_not_quoted(
    content: bytes, config: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_bytes(content)
    (problem,) = problems({"token_file": str(tmp_path / "token")}, config)
    assert "holds no token of 16 to 4096" in problem
    for word in content.split():
        assert word.decode(errors="replace") not in problem


def test_budget_in_bytes(config: Path, tmp_path: Path) -> None:
    flags = {"root": str(tmp_path / "cache"), "capacity": "1GB", "min_free": "2GiB"}
    budget = resolve_budget(load(flags, config).settings)
    assert (budget.capacity, budget.min_free) == (10**9, 2 * 2**30)


def test_min_free_is_larger_where_a_full_disk_stops_the_node(config: Path) -> None:
    settings = load({"root": "/no-such-directory/cache"}, config).settings
    assert resolve_budget(settings).min_free_share == Share("20%")


def test_description_says_value_and_place(config: Path, tmp_path: Path) -> None:
    flags = {"root": str(tmp_path / "c"), "capacity": "1GB", "listen": "none"}
    loaded = load(flags, config)
    lines = describe(loaded, resolve_budget(loaded.settings)).splitlines()
    said = {line.split()[0]: line for line in lines}
    assert set(said) == set(EXAMPLES)
    assert said["capacity"].endswith(" 1GB = 1000000000 bytes  (--capacity)")
    assert said["listen"].endswith("none  (--listen)")
    assert said["config"].endswith("(none)  (default)")
    assert said["group"].endswith(" own  (default)")
    assert said["socket_mode"].endswith("0660  (default)")


def test_the_file_that_was_found_where_it_is_looked_for_is_said(
    config: Path, tmp_path: Path
) -> None:
    config.write_text("capacity = 1500000000\n")
    loaded = load({"root": str(tmp_path / "c")}, config)
    lines = describe(loaded, resolve_budget(loaded.settings)).splitlines()
    said = {line.split()[0]: line.split(None, 1)[1] for line in lines}
    assert said["config"] == f"{config}  (default)"
    assert said["capacity"] == f"1500000000 = 1.5 GB = 1500000000 bytes  ({config})"


def test_lists_and_tables_of_the_file(config: Path) -> None:
    config.write_text(
        'allow_origins = ["hf://org/", "s3://bucket/"]\nimport_roots = ["/mnt/a", "/mnt/b"]\n'
        'credentials = {hub = "/etc/weightd/hub.token"}\nfetch_bandwidth = 1000\n'
    )
    settings = load({}, config).settings
    assert settings.allow_origins == ("hf://org/", "s3://bucket/")
    assert settings.import_roots == (Path("/mnt/a"), Path("/mnt/b"))
    assert settings.credentials == (CredentialFile("hub", "/etc/weightd/hub.token"),)
    assert settings.fetch_bandwidth == 1000


def test_a_credential_may_say_what_it_is_for(config: Path, tmp_path: Path) -> None:
    config.write_text(
        '[credentials]\nhub = {file = "/a", for = ["hf://org/", "https://weights.example/"]}\n'
        'store = {file = "/b", for = "s3://bucket/"}\nany = {file = "/c"}\nplain = "/d"\n'
    )
    loaded = load({"root": str(tmp_path / "c")}, config)
    assert loaded.settings.credentials == (
        CredentialFile("hub", "/a", ("hf://org/", "https://weights.example/")),
        CredentialFile("store", "/b", ("s3://bucket/",)),
        CredentialFile("any", "/c"),
        CredentialFile("plain", "/d"),
    )
    lines = describe(loaded, resolve_budget(loaded.settings)).splitlines()
    (said,) = (line.split(None, 1)[1] for line in lines if line.startswith("credentials"))
    assert said == (
        "hub=/a (for hf://org/ https://weights.example/), store=/b (for s3://bucket/), any=/c, "
        f"plain=/d  ({config})"
    )


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("allow_origins = []", "leave it out to allow any"),
        ('allow_origins = ["hf://org/", "org/"]', "'org/' begins with none of hf://"),
        ('allow_origins = "ftp://x/"', "'ftp://x/' begins with none of"),
        ('import_roots = ["models"]', "'models' is not an absolute path"),
        ('ca_file = "/no/such.pem"', "'/no/such.pem' is not a file that can be read"),
        ('token_file = "/no/such"', "a file that can be read, made by `openssl rand -hex 32"),
        ('credentials = "hub"', "'hub=' is not a name and an absolute path"),
        ('credentials = "hub=/a,hub=/b"', "a name is there twice"),
        ('credentials = {"h b" = "/a"}', "'h b=/a' is not a name"),
        ('credentials = {"h b" = {file = "/a"}}', "'h b=/a' is not a name"),
        ("credentials = {hub = {file = 7}}", "'hub=7' is not a name and an absolute path"),
        ('credentials = {hub = {for = "hf://org/"}}', 'its table is {file = "/etc/'),
        ('credentials = {hub = {file = "/a", four = "hf://o/"}}', 'its table is {file = "/etc/'),
        ('credentials = {hub = {file = "/a", for = []}}', "leave it out to show it to any"),
        ('credentials = {hub = {file = "/a", for = 7}}', "hub: for is 7"),
        ('credentials = {hub = {file = "/a", for = [7]}}', "hub: for has 7"),
        ('credentials = {hub = {file = "/a", for = "org/"}}', "'org/' begins with none of hf://"),
        ('credentials = {hub = {file = "/a", for = "https://"}}', "'https://' names no whole host"),
        ('credentials = {hub = {file = "/a", for = "http://w*"}}', "'http://w*' names no whole"),
        ("fetch_bandwidth = 0", "lets nothing arrive"),
        ("fetch_concurrency = 17", "17 is not a number from 1 to 16"),
    ],
)
def test_what_of_a_list_is_wrong_is_said(written: str, named: str, config: Path) -> None:
    config.write_text(written + "\n")
    (problem,) = problems({}, config)
    assert named in problem


def test_what_nothing_means_is_described(config: Path, tmp_path: Path) -> None:
    loaded = load({"root": str(tmp_path / "c")}, config)
    lines = describe(loaded, resolve_budget(loaded.settings)).splitlines()
    said = {line.split()[0]: line.split(None, 1)[1] for line in lines}
    assert said["allow_origins"] == "(any)  (default)"
    assert said["fetch_bandwidth"] == "none  (default)"
    assert said["import_roots"] == said["credentials"] == said["preload"] == "none  (default)"
