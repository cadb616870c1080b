"""Who reads which bytes of a model, without anybody reading any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from weightd.cache.fetching.ranges import CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, Piece, Range, Ranges
from weightd.cache.fetching.streams import GAIN, STREAMS_FIRST, STREAMS_MAX, Streams
from weightd.origins.contract import RemoteFile
from weightd.store import Part

MIB = 1 << 20
GIB = 1 << 30


@dataclass(slots=True)
class Clock:
    """A clock that stands until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Gaps:
    """What is missing of a part that nobody writes."""

    bytes: int
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def missing(self) -> list[tuple[int, int]]:
        return self.gaps


def piece(size: int, *gaps: tuple[int, int]) -> Piece:
    part = cast(Part, Gaps(size, list(gaps) or [(0, size)]))
    return Piece(RemoteFile("model.bin", size, ""), part)


def read(ranges: Ranges, clock: Clock, range: Range, size: int, seconds: float = 0.1) -> None:
    clock.now += seconds
    ranges.advance(range, size)


def taken(ranges: Ranges) -> Range:
    range = ranges.take()
    assert range is not None
    return range


def test_one_stream_asks_once_for_all_of_a_file() -> None:
    ranges = Ranges([piece(GIB)], clock=Clock())
    first = taken(ranges)
    assert (first.start, first.stop) == (0, GIB)
    ranges.advance(first, GIB)
    assert ranges.end(first)
    assert ranges.take() is None


def test_a_second_stream_begins_a_little_ahead_of_the_first_and_both_go_on_in_order() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB)], clock=clock)
    first = taken(ranges)
    read(ranges, clock, first, MIB)
    second = taken(ranges)
    assert first.stop == second.start <= 2 * CHUNK_MIN_BYTES
    for range in (first, second):
        read(ranges, clock, range, range.left)
        assert not ranges.end(range)
    following = taken(ranges)
    assert following.start == second.stop


def test_a_file_is_never_far_ahead_of_what_is_whole_from_its_start() -> None:
    clock = Clock()
    ranges = Ranges([piece(4 * GIB)], clock=clock)
    reading = [taken(ranges) for _ in range(4)]
    here = {one.first: one for one in reading}
    whole = False
    while not whole:
        one = reading.pop(0)
        read(ranges, clock, one, min(one.left, 8 * MIB), 0.01)
        if one.left > 0:
            reading.append(one)
        else:
            whole = ranges.end(one)
            if (more := ranges.take()) is not None:
                reading.append(more)
                here[more.first] = more
        last = max(one.start for one in here.values())
        lowest = min((one.start for one in reading), default=last)
        assert last - lowest <= 5 * CHUNK_MAX_BYTES
    assert sum(one.start - one.first for one in here.values()) == 4 * GIB


def test_files_are_shared_only_when_there_are_no_more_of_them() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB), piece(GIB)], clock=clock)
    first, second = taken(ranges), taken(ranges)
    assert (first.left, second.left) == (GIB, GIB)
    read(ranges, clock, first, first.left)
    assert ranges.end(first)
    assert taken(ranges).piece is second.piece


def test_what_is_soon_here_is_not_shared() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB)], clock=clock)
    first = taken(ranges)
    read(ranges, clock, first, GIB - 64 * MIB, seconds=1.0)
    assert ranges.take() is None


def test_a_slow_stream_is_helped_to_its_end() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB)], clock=clock)
    first = taken(ranges)
    read(ranges, clock, first, GIB - 64 * MIB, seconds=1000.0)
    second = taken(ranges)
    assert (second.start, second.stop) == (first.stop, first.stop + CHUNK_MIN_BYTES)


def test_only_what_is_missing_is_read() -> None:
    ranges = Ranges([piece(100, (10, 20), (90, 100))], clock=Clock())
    found = [taken(ranges), taken(ranges)]
    assert [(one.start, one.stop) for one in found] == [(10, 20), (90, 100)]
    assert ranges.take() is None


def test_what_a_stream_gives_back_is_read_next() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB)], clock=clock)
    first = taken(ranges)
    second = taken(ranges)
    read(ranges, clock, first, MIB)
    ranges.end(first)
    ranges.end(second)
    again = taken(ranges)
    assert again.start == MIB


def test_an_origin_without_ranges_gives_one_stream_all_of_it() -> None:
    clock = Clock()
    ranges = Ranges([piece(GIB)], clock=clock)
    first = taken(ranges)
    second = taken(ranges)
    ranges.end(second)
    assert ranges.merge(second)
    assert (first.start, first.stop) == (0, GIB)
    assert ranges.take() is None


def test_more_streams_are_kept_where_they_help() -> None:
    streams = Streams()
    for _ in range(8):
        streams.measured(20e6 * streams.wanted)
    assert streams.wanted == STREAMS_MAX


@pytest.mark.parametrize("enough", [2, 4, 8])
def test_more_streams_are_taken_back_where_they_do_not(enough: int) -> None:
    streams = Streams()
    for _ in range(8):
        streams.measured(20e6 * min(streams.wanted, enough))
    assert streams.wanted == max(enough, STREAMS_FIRST)
    assert GAIN > 1


def test_a_faraway_origin_is_watched_longer() -> None:
    streams = Streams()
    assert streams.period(0.001) < streams.period(0.1) < streams.period(10.0)
