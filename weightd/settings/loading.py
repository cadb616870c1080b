"""From flags, environment and file to `Settings`, or to every problem at once.

A flag wins over a variable, a variable over the file, the file over the default.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from weightd.settings.fitness import unfit
from weightd.settings.options import WITH_NONE, Settings, options, written
from weightd.settings.places import CONFIG, filesystem_total, on_system_disk
from weightd.settings.values import Share
from weightd.settings.variables import PREFIX, misspelt
from weightd.units import format_bytes

_UNSET: Final = {"allow_origins": "(any)", "ca_file": "(the system's)"}
"""What no value means, where it does not mean none."""

_OF_NO_VARIABLE: Final = "="

_CONFIG_BYTES_MAX: Final = 1024 * 1024


class SettingsError(Exception):
    """The settings cannot be used; ``problems`` holds one line for each that is wrong."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings in force, for each option where it was written, and the file, if one was read."""

    settings: Settings
    places: Mapping[str, str]
    file: Path | None


@dataclass(frozen=True, slots=True)
class Budget:
    """The two amounts in bytes, and what was taken for ``min_free``."""

    capacity: int
    min_free: int
    min_free_share: Share


def load(flags: Mapping[str, str], default_config: Path = CONFIG) -> Loaded:
    """Put the sources together and check them.

    ``flags`` holds what the command line gave, by the name of the option.
    Raises SettingsError with every problem found.
    """
    draft = _draft(flags, default_config)
    if draft.problems:
        raise SettingsError(draft.problems)
    return Loaded(draft.settings, draft.places, draft.file)


def load_fit(
    flags: Mapping[str, str], default_config: Path = CONFIG, *, taken: bool = False
) -> tuple[Loaded, Budget]:
    """The same, and whether this machine fits them: files, places, the budget.

    Root and sockets are left to a start, by which they are ``taken`` next.
    Nothing is changed.  Raises SettingsError with every problem of either kind.
    """
    draft = _draft(flags, default_config)
    problems = [*draft.problems, *unfit(draft.settings, draft.unsure, draft.places, taken=taken)]
    budget = None
    if draft.unsure.isdisjoint(("root", "require_mount", "capacity", "min_free")):
        try:
            budget = resolve_budget(draft.settings)
        except SettingsError as error:
            problems.extend(error.problems)
    if problems or budget is None:
        raise SettingsError(tuple(problems))
    return Loaded(draft.settings, draft.places, draft.file), budget


@dataclass(frozen=True, slots=True)
class _Draft:
    """Settings with the default in place of what is ``unsure``, as it was written wrong."""

    settings: Settings
    places: Mapping[str, str]
    file: Path | None
    problems: tuple[str, ...]
    unsure: frozenset[str]


def _draft(flags: Mapping[str, str], default_config: Path) -> _Draft:
    environment = _environment()
    file, file_problems = _file(flags, environment, default_config)
    merged = {**file.values, **environment, **flags}
    places = _places(flags, environment, file)
    settings, wrong = _validated(merged)
    unsure = frozenset(wrong)
    while settings is None:
        # What is wrong only because of another is no problem of its own.
        settings, more = _validated({name: merged[name] for name in merged if name not in unsure})
        assert settings is not None or not unsure.issuperset(more), f"left out, and wrong: {more}"
        unsure |= set(more)
    told = [_problem(detail, places) for detail in wrong.values()]
    return _Draft(settings, places, file.read, (*file_problems, *_misspelt(), *told), unsure)


def _validated(values: Mapping[str, Any]) -> tuple[Settings | None, dict[str, ErrorDetails]]:
    """Settings, or what is wrong, one for each option: a union would tell of all its branches."""
    try:
        # Made without a prefix that any variable has: what one of them says is in there already,
        # or was left out.
        return Settings(_env_prefix=_OF_NO_VARIABLE, **values), {}
    except ValidationError as error:
        return None, {str(detail["loc"][0]): detail for detail in error.errors()}


def resolve_budget(settings: Settings) -> Budget:
    """Turn the shares into bytes of the root's filesystem.

    Raises SettingsError when the budget comes to nothing there, or this user cannot look.
    """
    try:
        filesystem = filesystem_total(settings.root)
        system = on_system_disk(settings.root)
    except OSError as error:
        raise SettingsError((_unreachable(settings.root, error),)) from error
    if settings.require_mount and system:
        raise SettingsError((_not_mounted(settings.root),))
    share = settings.min_free
    if share is None:
        share = Share("20%" if system else "5%")
    capacity = settings.capacity.of(filesystem)
    if capacity == 0:
        nothing = (
            f"capacity: {settings.capacity} of the filesystem of {settings.root} "
            f"({filesystem} bytes) comes to no bytes at all; give a larger share"
        )
        raise SettingsError((nothing,))
    return Budget(capacity, share.of(filesystem), share)


def _not_mounted(root: Path) -> str:
    return (
        f"require_mount: {root} is on the filesystem of / or of kubelet, and a full one would "
        "stop the node; mount a disk of its own there, or set require_mount to no"
    )


def _unreachable(root: Path, error: OSError) -> str:
    return (
        f"root: {root} cannot be reached by this user: {error.strerror}; set another with --root, "
        "or let this user pass the directories above it"
    )


def describe(loaded: Loaded, budget: Budget) -> str:
    """The settings in force, one per line, with where each comes from."""
    lines = []
    for name in Settings.model_fields:
        value = getattr(loaded.settings, name)
        text = written(name, value)
        if name == "capacity":
            text = _amount(text, budget.capacity)
        elif name == "min_free":
            text = _amount(str(budget.min_free_share), budget.min_free)
        elif name == "config" and loaded.file is not None:
            text = str(loaded.file)
        elif value is None and name not in WITH_NONE:
            text = "own" if name.endswith("group") else _UNSET.get(name, "(none)")
        lines.append(f"{name:<18}{text}  ({loaded.places.get(name, 'default')})")
    return "\n".join(lines)


def _amount(text: str, count: int) -> str:
    """An amount as it was written, in decimal units where that is something else, and in bytes."""
    short = format_bytes(count)
    same = text.replace(" ", "") == short.replace(" ", "")
    return " = ".join([text, *([] if same else [short]), f"{count} bytes"])


# -- The sources ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """``read`` is None where there is none, or none that can be read."""

    path: Path
    values: dict[str, Any]
    read: Path | None = None


def _environment() -> dict[str, Any]:
    """What WEIGHTD_… variables say; those that name no option are somebody else's.

    Kubernetes makes such variables for a Service that is called weightd.
    """
    return EnvSettingsSource(Settings)()


def _misspelt() -> tuple[str, ...]:
    """Problems with variables that nobody reads, and that were meant for a setting."""
    meant = misspelt(os.environ, [option.name for option in options()])
    return tuple(
        f"{variable}: there is no such setting; did you mean {PREFIX}{name.upper()}?"
        for variable, name in sorted(meant.items())
    )


def _file(
    flags: Mapping[str, str], environment: Mapping[str, Any], default: Path
) -> tuple[_File, tuple[str, ...]]:
    """Read the TOML file; problems with it are told beside those of the other sources."""
    named = flags.get("config") or environment.get("config")
    path = Path(named) if named else default
    try:
        path = path.expanduser()
        with path.open("rb") as file:
            text = file.read(_CONFIG_BYTES_MAX + 1).decode()
    except FileNotFoundError:
        missing = f"config: there is no file {path}; leave the setting out, or write the file"
        return _File(path, {}), (missing,) if named else ()
    except RuntimeError:
        # It is in the home of nobody, which is told of any path.
        return _File(path, {}), ()
    except (OSError, UnicodeDecodeError) as error:
        return _File(path, {}), (f"config: {path} cannot be read: {error}",)
    if len(text) > _CONFIG_BYTES_MAX:
        return _File(path, {}), (f"config: {path} is longer than {_CONFIG_BYTES_MAX} bytes",)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits and tables as deep are errors of Python's own.
        return _File(path, {}), (f"config: {path} is not TOML: {error}",)
    problems = tuple(_unknown(key, path) for key in values if key not in _in_file())
    return _File(path, {k: v for k, v in values.items() if k in _in_file()}, path), problems


def _in_file() -> list[str]:
    """The options that a file may set: all but the one that names it."""
    return [option.name for option in options() if option.name != "config"]


def _unknown(key: str, path: Path) -> str:
    near = difflib.get_close_matches(key, _in_file(), n=1)
    advice = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(_in_file())}"
    return f"{key} (in {path}): there is no such setting; {advice}"


def _places(
    flags: Mapping[str, str], environment: Mapping[str, Any], file: _File
) -> dict[str, str]:
    places = dict.fromkeys(file.values, str(file.path))
    known = {option.name: option for option in options()}
    places |= {name: known[name].variable for name in environment if name in known}
    places |= {name: known[name].flag for name in flags}
    return places


def _problem(detail: ErrorDetails, places: Mapping[str, str]) -> str:
    """One line: the option, where it was written, what is wrong, the accepted form."""
    name = str(detail["loc"][0])
    reason = str(detail.get("ctx", {}).get("error", ""))
    if not reason:
        form = next(option.form for option in options() if option.name == name)
        reason = f"{detail['input']!r} is not {form}"
    return f"{name} ({places.get(name, 'default')}): {reason}"
