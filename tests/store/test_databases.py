"""The pins that must not be lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.store.damages import overwrite_header, overwrite_pages, truncate
from weightd.errors import IoError, RootUnusable, StateUnwritable
from weightd.model import GenerationId, Key, Pin
from weightd.store import Loss, PinChange, PinDatabase, PinsLost, StoredPin

ONE = GenerationId(Key.parse("org/m@r"), "1" * 64)
TWO = GenerationId(Key.parse("n"), "2" * 64)
PINS = [
    StoredPin(Pin("a", ONE, 1.5), "boot-1"),
    StoredPin(Pin("a", TWO, 2.5, forever=True), "boot-1"),
    StoredPin(Pin("b", ONE, 3.5, ttl=60.0, until=63.5, uid=1000), "boot-2"),
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def keep(path: Path, *pins: StoredPin) -> None:
    database = PinDatabase.open(path)
    for stored in pins:
        database.apply([PinChange.put(*stored)])
    database.close()


def kept(path: Path) -> list[StoredPin]:
    database = PinDatabase.open(path, expected=True)
    try:
        return database.load()
    finally:
        database.close()


def test_pins_survive(state: Path) -> None:
    keep(state, *PINS)
    assert kept(state) == PINS
    assert sorted(path.name for path in state.parent.iterdir()) == ["state.db"]


def test_a_renewal_replaces(state: Path) -> None:
    renewed = PINS[2]._replace(pin=Pin("b", ONE, 3.5, ttl=60.0, until=99.0), boot_id="boot-3")
    keep(state, *PINS, renewed)
    assert kept(state) == [*PINS[:2], renewed]


def test_changes_are_made_in_order(state: Path) -> None:
    database = PinDatabase.open(state)
    there_and_gone = [PinChange.put(*PINS[0]), PinChange.remove("a", ONE)]
    database.apply([*(there_and_gone * 50), PinChange.put(*PINS[1])])
    database.close()
    assert kept(state) == [PINS[1]]


def test_what_is_changed_together_is_one_transaction(state: Path) -> None:
    """None of it stands when it fails."""
    steps: list[str] = []

    def reach(name: str) -> None:
        steps.append(name)
        if steps == ["pin.before-commit"]:
            raise sqlite3.OperationalError("disk I/O error")

    database = PinDatabase.open(state, reach)
    changes = [PinChange.put(*PINS[0]), PinChange.put(*PINS[1]), PinChange.remove("a", ONE)]
    with pytest.raises(StateUnwritable, match="disk I/O error"):
        database.apply(changes)
    assert database.load() == []
    steps.append("again")
    database.apply(changes)
    assert steps == [
        "pin.before-commit",
        "again",
        "pin.before-commit",
        "unpin.before-commit",
        "pin.committed",
        "unpin.committed",
    ]
    database.close()
    assert kept(state) == [PINS[1]]


def test_a_closed_database_takes_no_pin(state: Path) -> None:
    database = PinDatabase.open(state)
    database.close()
    database.close()
    with pytest.raises(StateUnwritable):
        database.apply([PinChange.put(*PINS[0])])


def test_a_missing_database_is_a_loss_when_one_is_expected(state: Path) -> None:
    with pytest.raises(PinsLost, match="missing") as lost:
        PinDatabase.open(state, expected=True)
    assert lost.value.set_aside is None
    assert not state.exists()


def test_an_empty_file_is_a_loss_when_pins_are_expected(state: Path) -> None:
    state.write_bytes(b"")
    with pytest.raises(PinsLost, match="empty"):
        PinDatabase.open(state, expected=True)
    keep(state, PINS[0])
    assert kept(state) == [PINS[0]]


def spoil_a_row(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE pins SET key = '../x' WHERE holder = 'b'")
    connection.commit()
    connection.close()


def drop_a_table(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE pins")
    connection.commit()
    connection.close()


DAMAGES = [overwrite_header, overwrite_pages, truncate, spoil_a_row, drop_a_table]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_pins_are_set_aside_and_the_loss_is_remembered(state: Path, damage: object) -> None:
    assert callable(damage)
    keep(state, *PINS)
    damage(state)
    spoiled = state.read_bytes()
    with pytest.raises(PinsLost) as lost:
        PinDatabase.open(state)
    assert lost.value.set_aside == "state.db.lost-1"
    assert (state.parent / "state.db.lost-1").stat().st_size == len(spoiled)
    # Killed before a new one was begun, the loss is noticed again.
    with pytest.raises(PinsLost, match="missing"):
        PinDatabase.open(state, expected=True)
    loss = Loss(123.5, lost.value.reason)
    for given in (loss, None, Loss(999.0, "later")):
        database = PinDatabase.open(state, loss=given)
        assert database.loss() == loss
        assert database.load() == []
        database.close()
    database = PinDatabase.open(state, expected=True)
    database.apply([PinChange.accept_loss()])
    assert database.loss() is None
    database.close()


def test_a_second_loss_does_not_overwrite_the_first(state: Path) -> None:
    for number in (1, 2):
        state.write_bytes(b"garbage" * 1000)
        with pytest.raises(PinsLost) as lost:
            PinDatabase.open(state)
        assert lost.value.set_aside == f"state.db.lost-{number}"


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_is_no_file_is_not_opened(state: Path, tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        state.mkdir()
    else:
        state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IoError, match="not a regular file"):
        PinDatabase.open(state)
    assert not (tmp_path / "elsewhere").exists()


def test_a_newer_schema_is_refused(state: Path) -> None:
    keep(state, *PINS)
    connection = sqlite3.connect(state)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(RootUnusable, match="schema 2"):
        PinDatabase.open(state)


def test_what_nobody_expected_is_told_and_nothing_is_changed(state: Path) -> None:
    errors = [RuntimeError("nobody expected this")]

    def reach(name: str) -> None:
        if errors:
            raise errors.pop()

    database = PinDatabase.open(state, reach)
    with pytest.raises(StateUnwritable, match="nobody expected this"):
        database.apply([PinChange.put(*PINS[0]), PinChange.put(*PINS[2])])
    database.apply([PinChange.put(*PINS[1])])
    assert database.load() == [PINS[1]]
    database.close()
