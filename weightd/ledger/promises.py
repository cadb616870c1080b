"""What is promised to arrivals, and how much of it they may write by now."""

from __future__ import annotations

from collections.abc import Iterator

from weightd.ledger.entries import Reservation
from weightd.ledger.generations import IllegalMove


class Promises:
    """Every open reservation, and the bytes they come to."""

    def __init__(self) -> None:
        self.reserved = 0
        self.granted = 0
        # In order of arrival.
        self._open: dict[Reservation, None] = {}

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def written(self) -> int:
        """Bytes that the writers have told of so far."""
        return sum(reservation.written for reservation in self._open)

    @property
    def here(self) -> int:
        """Bytes that are on the disk already: written, or there as somebody else's."""
        return sum(reservation.written + reservation.present for reservation in self._open)

    @property
    def refused(self) -> int:
        """Bytes of those that were refused under way and are about to be released."""
        return sum(one.bytes for one in self._open if one.refusal is not None)

    def newest_first(self) -> Iterator[Reservation]:
        """Those that are still to go through, the one promised last before all others."""
        return (one for one in reversed(self._open) if one.refusal is None)

    def make(self, reservation: Reservation) -> Reservation:
        """Enter a new reservation."""
        self._open[reservation] = None
        self.reserved += reservation.bytes
        self.granted += reservation.granted
        return reservation

    def must_be_open(self, reservation: Reservation) -> None:
        """Raises IllegalMove when ``reservation`` was committed or released."""
        if not reservation.open:
            raise IllegalMove(f"the reservation for {reservation.key} was released")

    def extend(self, reservation: Reservation, extra: int) -> None:
        """Promise ``extra`` bytes more."""
        reservation.bytes += extra
        self.reserved += extra

    def grant(self, reservation: Reservation, left: int) -> bool:
        """Grant all that was promised if the disk, with ``left`` bytes besides grants, allows.

        Never while a victim may still be refused: its bytes would stay.
        """
        if not self.may_grant(reservation, left):
            return False
        more = reservation.bytes - reservation.granted
        reservation.granted += more
        self.granted += more
        return True

    def may_grant(self, reservation: Reservation, left: int) -> bool:
        """Whether `grant` would."""
        more = reservation.bytes - reservation.granted
        if any(not doomed.settled for doomed in reservation.victims):
            return False
        return more <= 0 or self.granted + more <= left

    def end(self, reservation: Reservation) -> None:
        """Take an open reservation off the books."""
        reservation.open = False
        self._open.pop(reservation, None)
        self.reserved -= reservation.bytes
        self.granted -= reservation.granted
