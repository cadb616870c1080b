"""Run a command, and turn what it raises into a line and an exit code."""

from __future__ import annotations

from weightd.cli.exits import Exit, exit_of
from weightd.cli.output import Unwritable, nobody_reads, note, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from weightd.errors import WeightdError


_FLAGS: Final[Mapping[str, str]] = {
    "?wait=SECONDS": "--wait DURATION",
    "POST /v1/pins/accept-loss": "weightd pins --accept-loss",
    "If-None-Match": "--create-only",
}
"""What the daemon advises in the words of HTTP, as a command line has it."""


def guarded(run: Callable[[], int]) -> int:
    """The exit code of a command; its errors go to stderr, in a line each."""
    printable()
    try:
        return run()
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
        note(_by_flags(str(error)))
        return exit_of(error.code)


def _by_flags(advice: str) -> str:
    for asked, flag in _FLAGS.items():
        advice = advice.replace(asked, flag)
    return advice


def _errors() -> type[WeightdError]:
    from weightd.errors import WeightdError

    return WeightdError
