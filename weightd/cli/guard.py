"""Run a command, and turn what it raises into a line and an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from weightd.cli.exits import Exit, exit_of
from weightd.cli.output import Unwritable, nobody_reads, note, printable

if TYPE_CHECKING:
    from weightd.errors import WeightdError


def guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """The exit code of a command; its errors go to stderr, in a line each."""
    printable()
    try:
        return run(arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        nobody_reads()
        return Exit.OK
    except Unwritable as error:
        note(f"the output cannot be written: {error}")
        return Exit.ERROR
    # Python looks at this only when something was raised: the classes take a while to import.
    except _errors() as error:
        note(str(error))
        return exit_of(error.code)


def _errors() -> type[WeightdError]:
    from weightd.errors import WeightdError

    return WeightdError
