"""Why the daemon does not start."""

from __future__ import annotations


class StartRefused(Exception):
    """Every reason, each one clear line that says what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
