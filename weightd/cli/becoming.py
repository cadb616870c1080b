"""The command that `weightd run` becomes: its placeholders, its program, its environment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weightd.client.holding import Hold

ALIAS_FORM: Final = "a letter followed by letters, digits, '_' or '-'"

_ALIAS: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\{(path|file|name)(?::([A-Za-z][A-Za-z0-9_-]*))?\}", re.ASCII)


class Part(NamedTuple):
    """One model of a run: the first has the alias ''.  ``sources`` are tried in order on a miss."""

    alias: str
    key: str
    sources: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The variable of the environment that says its path."""
        return "WEIGHTD_PATH" + (f"_{_shouted(self.alias)}" if self.alias else "")

    def placeholder(self, what: str) -> str:
        return f"{{{what}:{self.alias}}}" if self.alias else f"{{{what}}}"


class Filled(NamedTuple):
    """A command as it is run."""

    arguments: list[str]
    environment: dict[str, str]


class Command(NamedTuple):
    """A command with its placeholders, and the ``program`` that it names."""

    program: str
    arguments: tuple[str, ...]
    parts: tuple[Part, ...]

    def filled(self, holds: Mapping[str, Hold]) -> Filled | str:
        """The command with the paths of what is held, or why it cannot be filled in."""
        for part in self.parts:
            wants_file = part.placeholder("file") in " ".join(self.arguments)
            if wants_file and holds[part.alias].model.file is None:
                return (
                    f"{part.key} has more than one file, so {part.placeholder('file')} names none; "
                    f"give {part.placeholder('path')}, its directory, or a path below it"
                )

        def value(found: re.Match[str]) -> str:
            model = holds[found[2] or ""].model
            name = model.key.partition("@")[0]
            return {"path": model.path, "file": model.file or "", "name": name}[found[1]]

        arguments = [_PLACEHOLDER.sub(value, one) for one in self.arguments]
        return Filled(arguments, self._environment(holds))

    def _environment(self, holds: Mapping[str, Hold]) -> dict[str, str]:
        told = dict(os.environ)
        for part in self.parts:
            told[part.variable] = holds[part.alias].path
            told[part.variable.replace("_PATH", "_KEY", 1)] = part.key
        return told


def read_command(
    given: Sequence[str], parts: Sequence[Part], by_environment: bool
) -> Command | str:
    """The command, or what is wrong with it: said before anything is fetched."""
    if not given:
        return "there is no command; write it behind --, such as: -- vllm serve {path}"
    twice = {one.alias for one in parts if [two.alias for two in parts].count(one.alias) > 1}
    if twice:
        return f"the alias {min(twice)} is given twice"
    wrong = _wrong_placeholders(given, parts, by_environment)
    if wrong is not None:
        return wrong
    program = shutil.which(given[0])
    if program is None:
        what = "there is no such file" if "/" in given[0] else "it is not on the PATH"
        if os.path.exists(given[0]):
            what = "it may not be run"
        return f"the command {given[0]} cannot be run: {what}"
    return Command(program, tuple(given), tuple(parts))


def _wrong_placeholders(
    given: Sequence[str], parts: Sequence[Part], by_environment: bool
) -> str | None:
    """A placeholder of no model, or a model that nothing in the command names."""
    named = {found[2] or "" for one in given for found in _PLACEHOLDER.finditer(one)}
    located = {
        found[2] or ""
        for one in given
        for found in _PLACEHOLDER.finditer(one)
        if found[1] != "name"
    }
    aliases = {part.alias for part in parts}
    for alias in sorted(named - aliases):
        known = ", ".join(sorted(aliases - {""})) or "none is given"
        return f"{{path:{alias}}} is of no model; -m {alias}=KEY gives one (known: {known})"
    for part in parts:
        if part.alias in located or by_environment or _mentions(given, part.variable):
            continue
        return (
            f"{part.placeholder('path')} is nowhere in the command, which would not know where "
            f"{part.key} is; put it there, or say --by-environment if it reads {part.variable}"
        )
    return None


def _mentions(given: Sequence[str], variable: str) -> bool:
    """Whether a shell's words among the arguments read a variable."""
    name = re.compile(rf"\b{variable}\b")
    return any(name.search(one) for one in given)


def is_alias(text: str) -> bool:
    return _ALIAS.fullmatch(text) is not None


def _shouted(alias: str) -> str:
    return alias.upper().replace("-", "_")
