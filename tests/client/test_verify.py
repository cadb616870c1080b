"""A verification through both clients: what it tells, and what it is begun again for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_restart import answered, refusal, scripted
from tests.client.twins import TWINS, twin
from tests.store.damages import flip_byte
from weightd.client import Client
from weightd.client.faults import Unreachable
from weightd.client.records import Verification
from weightd.errors import Draining, GenerationGone, IoError, NotResident, TooMany

WEIGHTS = bytes(range(256)) * 20_000


@pytest.fixture(params=TWINS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_whole_model(client: Client, key: str) -> None:
    model = client.put(key, WEIGHTS)
    told: list[Verification] = []
    found = client.verify(key, progress=told.append)
    assert (found.key, found.generation, found.damaged) == (key, model.generation, ())
    assert (found.bytes_done, found.bytes_total, found.kept) == (len(WEIGHTS), len(WEIGHTS), False)
    assert told[-1] == found
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
    again = client.get(key)
    assert again is not None
    assert again.hits == model.hits + 1, "the lookup is one, the verification is none"


def test_a_damaged_model(client: Client, key: str) -> None:
    model = client.put(key, WEIGHTS, file="weights")
    client.pin("replica", key)
    flip_byte(Path(model.path, "weights"), len(WEIGHTS) - 1)
    found = client.verify(key)
    ((path, problem, _, expected, actual),) = found.damaged
    assert (path, problem) == ("weights", "digest-mismatch")
    assert expected == model.files[0].sha256 != actual
    assert found.kept
    assert client.get(key) is None
    with pytest.raises(NotResident):
        client.verify(key)
    client.unpin("replica", key)


def line(outcome: str | None, **more: Any) -> bytes:
    told = {
        "key": "m",
        "generation": "0" * 64,
        "state": "reading" if outcome is None else "ended",
        "bytes_done": 1,
        "bytes_total": 2,
        "file": "w",
        "rate": 0.0,
        "eta": None,
        "damaged": [],
        "shared": [],
        "kept": False,
        "problem": None,
        **more,
    }
    type = "progress" if outcome is None else "end"
    shown: dict[str, Any] = {"seq": 1, "type": type, "at": "2026-03-01T12:00:00.000Z"}
    shown |= {"verification": told} | ({} if outcome is None else {"outcome": outcome})
    return json.dumps(shown).encode() + b"\n"


WHOLE = answered(line(None) + line("whole"))


def test_what_went_meanwhile_is_told(tmp_path: Path, kind: str) -> None:
    with (
        scripted(tmp_path / "s", answered(line("gone"))) as script,
        twin(kind, script.place) as client,
        pytest.raises(GenerationGone) as gone,
    ):
        client.verify("m")
    assert (gone.value.key, gone.value.generation) == ("m", "0" * 64)


def test_what_it_failed_with_is_told(tmp_path: Path, kind: str) -> None:
    problem = {"code": "io-error", "call": "read of w", "error": "it hangs", "detail": "No."}
    with (
        scripted(tmp_path / "s", answered(line("failed", problem=problem))) as script,
        twin(kind, script.place) as client,
        pytest.raises(IoError, match="it hangs"),
    ):
        client.verify("m")


@pytest.mark.parametrize(
    "first",
    [
        answered(line(None) + line("draining")),
        answered(line(None)),
        WHOLE[:-20],
        refusal(b"starting", b"1"),
    ],
    ids=["drained", "ended", "cut", "starting"],
)
def test_it_is_begun_again(tmp_path: Path, kind: str, first: bytes) -> None:
    with scripted(tmp_path / "s", first, WHOLE) as script, twin(kind, script.place) as client:
        assert client.verify("m").damaged == ()
    assert len(script.requests) == 2
    assert script.requests[1].startswith(b"POST /v1/verify/m HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answered(line(None) + line("draining")), Draining),
        (WHOLE[:-20], Unreachable),
        (refusal(b"draining", b"5"), Draining),
        (refusal(b"too-many", b"5", b', "what": "verifications", "limit": 16'), TooMany),
    ],
    ids=["drained", "cut", "draining", "too-many"],
)
def test_but_not_for_ever(tmp_path: Path, kind: str, answer: bytes, error: type[Exception]) -> None:
    with (
        scripted(tmp_path / "s", answer) as script,
        twin(kind, script.place, patience=0.1) as client,
        pytest.raises(error),
    ):
        client.verify("m")
    assert len(script.requests) == 1


def test_no_daemon_is_told_at_once(tmp_path: Path, kind: str) -> None:
    with twin(kind, tmp_path / "none") as client, pytest.raises(Unreachable):
        client.verify("m")
