"""What stands in an arrival where weightd never put it: not gone on with, and not followed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.support import Claims, Ledger, begun, names_in
from weightd.errors import IoError
from weightd.model import Key
from weightd.store import Ingest, Parked, Store
from weightd.store.progress import BYTES_MAX

KEY = Key("org/m")
SIZE = 20_000


def parked(store: Store) -> Parked:
    """An arrival with one file that is half here, and one that is whole."""
    ledger = Ledger()
    ingest = begun(store, KEY)
    ingest.note(b"{}")
    for path, size in (("a/w", SIZE // 2), ("b", SIZE)):
        part = ingest.part(path, SIZE, claim=ledger.claim, wrote=ledger.wrote)
        part.write(0, memoryview(bytes(size)))
    return ingest.park()


def go_on(ingest: Ingest) -> None:
    ledger = Ledger()
    ingest.note(b"{}")
    ingest.part("a/w", SIZE, claim=ledger.claim, wrote=ledger.wrote)


def outside(store: Store) -> Path:
    """A file of somebody else's."""
    place = store.root.parent / "victim"
    place.write_bytes(b"victim")
    return place


def take_away(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


def plant_directory(place: Path, _: Path) -> None:
    take_away(place)
    place.mkdir()


def plant_full_directory(place: Path, victim: Path) -> None:
    plant_directory(place, victim)
    (place / "inside").write_bytes(b"something")


def plant_fifo(place: Path, _: Path) -> None:
    take_away(place)
    os.mkfifo(place)


def plant_link(place: Path, victim: Path) -> None:
    take_away(place)
    place.symlink_to(victim)


def plant_second_name(place: Path, victim: Path) -> None:
    take_away(place)
    os.link(victim, place)


def plant_bulk(place: Path, _: Path) -> None:
    os.truncate(place, BYTES_MAX + 1)


Plant = Callable[[Path, Path], None]
PLANTS = (plant_directory, plant_fifo, plant_link, plant_second_name, plant_bulk)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_start_goes_on_with_no_progress_that_was_planted(store: Store, plant: Plant) -> None:
    place, victim = store.root / "incoming" / parked(store).id, outside(store)
    plant(place / ".progress", victim)
    report = store.scan()
    assert report.parked == []
    (debris,) = report.debris
    assert store.unlink(debris, Claims()) == 0
    assert names_in(store, "incoming") == names_in(store, "doomed") == []
    assert victim.read_bytes() == b"victim"


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        *((".progress", plant) for plant in PLANTS),
        (".arrival.new", plant_full_directory),
        ("m/a/w", plant_directory),
        ("m/a/w", plant_full_directory),
        ("m/a", plant_fifo),
        ("m/a", plant_link),
    ],
)
def test_what_was_planted_meanwhile_is_not_parked_again(
    store: Store, name: str, plant: Plant
) -> None:
    """So that the key begins anew."""
    stored, victim = parked(store), outside(store)
    place = store.root / "incoming" / stored.id / name
    if not place.exists():
        place.touch()
    plant(place, victim)
    ingest = begun(store, KEY, resume=stored)
    with pytest.raises(IoError):
        go_on(ingest)
    if ingest.noted:
        with pytest.raises(IoError, match="gone"):
            ingest.park()
    left = ingest.abort()
    assert left is None or store.unlink(left, Claims()) == 0
    assert names_in(store, "incoming") == names_in(store, "doomed") == []
    assert victim.read_bytes() == b"victim"
