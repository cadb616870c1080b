"""``weightd run KEY -- COMMAND``: have models here and held, then become the command.

The holds are descriptors that the command inherits: the kernel keeps the models
for as long as it, or a child that has them too, is there, whatever becomes of
weightd.  Nothing of this program is left in between, so signals and the exit
code are the command's own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from weightd.cli.exits import Exit
from weightd.cli.output import note
from weightd.cli.reaching import add_common, add_wait, read_holder

if TYPE_CHECKING:
    from weightd.cli.becoming import Command, Part
    from weightd.client import Client
    from weightd.client.holding import Hold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "weightd run KEY [options] [-m ALIAS=KEY ...] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("key", metavar="KEY", type=_key, help="the model's key")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        action="append",
        help="where to fetch it from on a miss, such as hf://org/name; again for a mirror",
    )
    parser.add_argument(
        "-m",
        "--model",
        dest="more",
        metavar="ALIAS=KEY[=SOURCE]",
        type=_aliased,
        action="append",
        default=[],
        help="one more model, which is {path:ALIAS} in the command; with where to fetch it from",
    )
    add_wait(parser)
    parser.add_argument(
        "--holder",
        metavar="NAME",
        type=read_holder,
        help="in whose name to pin while it starts; else WEIGHTD_HOLDER, else one made of the "
        "pod's uid (POD_UID) or the boot, and of this process",
    )
    parser.add_argument("--digest", metavar="SHA256", help="the content that it must be")
    parser.add_argument(
        "--credential", metavar="NAME", help="which of the daemon's credentials the origin is shown"
    )
    parser.add_argument(
        "--by-environment",
        action="store_true",
        help="the command takes the path from WEIGHTD_PATH, and need not be given {path}",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing that is no error")
    add_common(parser, json=False)
    parser.epilog = (
        "In the command {path} is the model's directory, {file} the file of a model that has only "
        "one, {name} the key without its revision; {path:ALIAS} is another model's. The "
        "environment has WEIGHTD_PATH and WEIGHTD_KEY, and WEIGHTD_PATH_ALIAS for the others. "
        "The models stay until the command and all its children that inherit descriptors are "
        "gone. Example: weightd run org/llama --from hf://org/llama -- vllm serve {path}"
    )
    parser.set_defaults(usage_error=parser.error)


def run(arguments: argparse.Namespace) -> int:
    from weightd.cli.becoming import Part, read_command

    parts = [Part("", arguments.key, tuple(arguments.source or ())), *arguments.more]
    command = read_command(arguments.become, parts, arguments.by_environment)
    if isinstance(command, str):
        arguments.usage_error(command)
        return Exit.USAGE
    _keep_standard_numbers()
    # Ended before the command is there, it lets go of what it has.
    signal.signal(signal.SIGTERM, _terminated)
    holds = _held(arguments, parts)
    # What was said must be out before another program has the descriptor.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return _become(command, holds)


def _keep_standard_numbers() -> None:
    """Occupy those of 0, 1 and 2 that are closed: a hold under one of them would be taken for it.

    They are closed in the command again.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest that is free, which is this one.
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def _held(arguments: argparse.Namespace, parts: Sequence[Part]) -> dict[str, Hold]:
    """A hold for every model, by alias."""
    from weightd.client import Client
    from weightd.client.asking import PATIENCE

    patience = max(PATIENCE, arguments.wait)
    with Client(arguments.socket, patience=patience, expected=arguments.wait > 0) as client:
        return {part.alias: _hold(client, arguments, part) for part in parts}


def _hold(client: Client, arguments: argparse.Namespace, part: Part) -> Hold:
    from weightd.cli.following import Following

    with Following(part.key, quiet=arguments.quiet) as following:
        return client.take_hold(
            part.key,
            part.sources or None,
            wait=arguments.wait,
            holder=arguments.holder,
            digest=None if part.alias else arguments.digest,
            credential=arguments.credential,
            progress=following.show,
        )


def _terminated(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _become(command: Command, holds: dict[str, Hold]) -> NoReturn:
    """Become the command, which inherits every hold; exit where that cannot be."""
    for hold in holds.values():
        os.set_inheritable(hold.descriptor, True)
    # Python ignores these, and what is ignored would be so in the command too.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    filled = command.filled(holds)
    if isinstance(filled, str):
        note(filled)
        sys.exit(Exit.ERROR)
    try:
        os.execve(command.program, filled.arguments, filled.environment)
    except OSError as error:
        lost = isinstance(error, FileNotFoundError) and os.path.exists(command.program)
        why = "the interpreter that it names is not there" if lost else error.strerror
        note(f"{command.program} cannot be run: {why}")
        sys.exit(Exit.ERROR)


def _key(text: str) -> str:
    from weightd.keys import key_fault

    fault = key_fault(text)
    if fault is not None:
        from weightd.errors import InvalidKey

        raise argparse.ArgumentTypeError(InvalidKey(text, fault).detail)
    return text


def _aliased(text: str) -> Part:
    from weightd.cli.becoming import ALIAS_FORM, Part, is_alias

    alias, equals, rest = text.partition("=")
    key, _, source = rest.partition("=")
    if not equals or not is_alias(alias):
        raise argparse.ArgumentTypeError(f"{text!r} is not ALIAS=KEY, an alias being {ALIAS_FORM}")
    return Part(alias, _key(key), (source,) if source else ())
