"""Records on the way to a path, made without `typing` or `dataclasses`.

What either loads takes several times as long as a lookup, and a command that
asks for one path has nothing else to do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Shape:
    """A record: its fields are those that its class declares, in that order.

    A type checker knows them as those of a data class that nobody changes.
    """

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._names = tuple(cls.__annotations__)

    def __init__(self, *given: Any, **named: Any) -> None:
        told = dict(zip(self._names, given, strict=False)) | named
        # What is not given stands in the class.
        lacking = [name for name in self._names if name not in told and not hasattr(self, name)]
        if lacking or len(told) != len(given) + len(named) or not told.keys() <= {*self._names}:
            raise TypeError(f"{type(self).__name__} takes {self._names}, not {given} and {named}")
        self.__dict__.update(told)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash((type(self), *self._told()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._told()}"

    def _told(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._names)
