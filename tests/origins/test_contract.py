"""The contract of origins, which every kind of origin keeps."""

from __future__ import annotations

import hashlib
import random
import threading
from typing import Final

import pytest

from tests.origins.places import Place
from weightd.errors import OriginChanged, OriginFailed
from weightd.origins import Origin, Patience, RemoteFile

ONE: Final = random.Random(1).randbytes((3 << 20) + 17)
TWO: Final = random.Random(2).randbytes(70_001)
OTHER: Final = random.Random(3).randbytes(len(ONE))
FILES: Final = {"one.bin": ONE, "a/two.bin": TWO, "config.json": b"{}", "empty.txt": b""}

KINDS: Final = [
    pytest.param("web_place", marks=pytest.mark.needs("nginx", "openssl"), id="http"),
    pytest.param("whole_place", marks=pytest.mark.needs("nginx", "openssl"), id="http-whole"),
    pytest.param("tls_place", marks=pytest.mark.needs("nginx", "openssl"), id="https"),
    pytest.param("listing_place", marks=pytest.mark.needs("nginx", "openssl"), id="listing"),
    pytest.param("file_place", id="file"),
    pytest.param("hub_place", id="hf"),
    pytest.param("s3_place", marks=pytest.mark.needs("obstore", "weed", "boto3"), id="s3"),
    pytest.param("gs_place", marks=pytest.mark.needs("obstore", "weed", "boto3"), id="gs"),
    pytest.param(
        "az_place",
        marks=pytest.mark.needs("obstore", "azurite-blob", "azure-storage-blob"),
        id="az",
    ),
]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """A place of each kind, with files in it."""
    found: Place = request.getfixturevalue(request.param)
    for path, content in FILES.items():
        if not found.single or path == "one.bin":
            found.put(path, content)
    return found


def read(origin: Origin, file: RemoteFile, start: int = 0, stop: int | None = None) -> bytes:
    """Every byte of a range, by reads that are shorter than what there is."""
    buffer = memoryview(bytearray(100_003))
    content = bytearray()
    stream = origin.open(file, start, stop)
    try:
        while size := stream.readinto(buffer):
            content += buffer[:size]
    finally:
        stream.close()
    return bytes(content)


def file_of(origin: Origin, path: str = "one.bin") -> RemoteFile:
    return next(file for file in origin.list().files if file.path == path)


def test_lists_what_there_is_in_order(place: Place) -> None:
    origin = place.open()
    try:
        listing = origin.list()
    finally:
        origin.close()
    expected = {"one.bin": ONE} if place.single else FILES
    assert [file.path for file in listing.files] == sorted(expected)
    for file in listing.files:
        content = expected[file.path]
        assert file.bytes == len(content)
        if file.path in place.states_sha256:
            assert file.sha256 == hashlib.sha256(content).hexdigest()
        else:
            assert file.sha256 is None, "an ETag is no sha256"
    assert listing.bytes == sum(map(len, expected.values()))
    assert (listing.revision is not None) == place.knows_change


def test_reads_every_file_whole(place: Place) -> None:
    origin = place.open()
    try:
        for file in origin.list().files:
            assert read(origin, file) == FILES[file.path]
            assert read(origin, file, 0, file.bytes) == FILES[file.path]
    finally:
        origin.close()


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (0, 1000), (len(ONE) - 1, len(ONE)), (1 << 20, 2 << 20), (7, None), (5, 5)],
)
def test_reads_any_range(place: Place, start: int, stop: int | None) -> None:
    origin = place.open()
    try:
        file = file_of(origin)
        if place.ranges or start in (0, stop):
            assert read(origin, file, start, stop) == ONE[start:stop]
            return
        with pytest.raises(OriginFailed) as raised:
            read(origin, file, start, stop)
        assert not raised.value.ranges
    finally:
        origin.close()


def test_reads_side_by_side(place: Place) -> None:
    """Several threads read one origin at once, each its own range or file."""
    origin = place.open()
    found: dict[int, bytes] = {}

    def one(number: int) -> None:
        start, stop = (number * 390_000, number * 390_000 + 390_000) if place.ranges else (0, None)
        found[number] = read(origin, file, start, stop)

    try:
        file = file_of(origin)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        origin.close()
    if place.ranges:
        assert b"".join(found[number] for number in range(8)) == ONE[:3_120_000]
    else:
        assert set(found.values()) == {ONE}


def test_a_change_is_told(place: Place) -> None:
    """Other bytes of the same length are not taken for what was listed."""
    origin = place.open()
    try:
        before = origin.list()
        file = next(one for one in before.files if one.path == "one.bin")
        if not place.knows_change:
            # Nothing in the listing tells; but two reads of one file never give two contents.
            assert read(origin, file, 0, 1000) == ONE[:1000]
        place.put("one.bin", OTHER)
        with pytest.raises(OriginChanged):
            read(origin, file)
        if place.ranges:
            with pytest.raises(OriginChanged):
                read(origin, file, 1000, 2000)
        after = origin.list()
        if place.knows_change:
            assert after.revision != before.revision
        assert read(origin, next(one for one in after.files if one.path == "one.bin")) == OTHER
    finally:
        origin.close()


def test_a_change_of_length_is_told(place: Place) -> None:
    origin = place.open()
    try:
        file = file_of(origin)
        place.put("one.bin", ONE[:-10])
        with pytest.raises(OriginChanged):
            read(origin, file)
    finally:
        origin.close()


def test_an_equal_state_has_an_equal_revision(place: Place) -> None:
    origin, again = place.open(), place.open()
    try:
        assert origin.list() == again.list()
    finally:
        origin.close()
        again.close()


def test_what_is_gone_fails(place: Place) -> None:
    origin = place.open()
    try:
        file = file_of(origin)
        place.put("one.bin", None)
        with pytest.raises(OriginFailed) as raised:
            read(origin, file)
    finally:
        origin.close()
    assert isinstance(raised.value, OriginChanged) or not raised.value.retryable


def test_what_was_never_there_is_no_miss_to_retry(place: Place) -> None:
    for path in list(FILES):
        if not place.single or path == "one.bin":
            place.put(path, None)
    origin = place.open()
    try:
        if "listing" in place.reference or "hf://" in place.reference:
            return  # what lists is still there, and lists
        with pytest.raises(OriginFailed) as raised:
            origin.list()
    finally:
        origin.close()
    assert not raised.value.retryable
    assert place.reference in str(raised.value)


def test_a_stream_is_closed_in_the_middle(place: Place) -> None:
    """Also twice; the origin goes on, and the closed stream gives nothing more."""
    origin = place.open()
    buffer = memoryview(bytearray(1000))
    try:
        file = file_of(origin)
        stream = origin.open(file)
        assert stream.readinto(buffer) > 0
        stream.close()
        stream.close()
        with pytest.raises(OriginFailed):
            stream.readinto(buffer)
        assert read(origin, file) == ONE
    finally:
        origin.close()


def test_a_closed_origin_gives_nothing_more(place: Place) -> None:
    """It is closed any number of times, also while a stream is open."""
    origin = place.open()
    file = file_of(origin)
    stream = origin.open(file)
    origin.close()
    origin.close()
    stream.close()
    if not place.reference.startswith("file://"):
        with pytest.raises(OriginFailed):
            origin.list()
        with pytest.raises(OriginFailed):
            read(origin, file)


def test_patience_is_taken(place: Place) -> None:
    """Bounds that are not reached change nothing."""
    origin = place.open(Patience(connect=20.0, progress=60.0))
    try:
        assert read(origin, file_of(origin)) == ONE
    finally:
        origin.close()
