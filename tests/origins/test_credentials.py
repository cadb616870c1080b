"""Who may name a credential, for which sources, and which of them sees it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.liar import Liar, Request, head, running_liar
from weightd.errors import ADMIN_SOCKET, Forbidden, InvalidRequest
from weightd.origins import Patience, Trust, check_credential, open_origin, parse_reference
from weightd.origins.contract import CredentialFile

TRUST: Final = Trust(
    credentials=(
        CredentialFile("any", "/secrets/any"),
        CredentialFile("hub", "/secrets/hub", ("hf://org/", "https://weights.example/")),
    )
)
"""One that is shown to any source, and one that is for some."""


def check(name: str, *sources: str, anybody: bool = False) -> None:
    check_credential(name, [parse_reference(one) for one in sources], TRUST, anybody=anybody)


@pytest.mark.parametrize("anybody", [False, True])
def test_it_is_for_what_begins_as_its_entry_says(anybody: bool) -> None:
    check("hub", "hf://org/m", anybody=anybody)
    check("hub", "https://elsewhere.example/m", "https://weights.example/m", anybody=anybody)
    for source in (
        "hf://organ/m",
        "https://weights.example.evil.net/m",
        "http://weights.example/m",
    ):
        with pytest.raises(InvalidRequest, match="for none of these sources") as refused:
            check("hub", source, anybody=anybody)
        assert refused.value.what == "credential"
        assert ("hf://org/" in str(refused.value)) is not anybody


def test_where_anybody_asks_none_is_named_that_any_source_would_see() -> None:
    check("any", "hf://org/m")
    with pytest.raises(Forbidden, match="'any' is not for everybody") as refused:
        check("any", "hf://org/m", anybody=True)
    assert refused.value.door == ADMIN_SOCKET


def test_which_there_are_is_told_to_those_who_may_name_them() -> None:
    with pytest.raises(InvalidRequest, match=r"no 'x' in the settings; there is any, hub"):
        check("x", "hf://org/m")
    with pytest.raises(InvalidRequest, match=r"no 'x' in the settings\.$"):
        check("x", "hf://org/m", anybody=True)


@pytest.fixture
def liars() -> Iterator[tuple[Liar, Liar]]:
    """Two mirrors of the same."""

    def content(request: Request, peer: socket.socket) -> bool:
        peer.sendall(head(200, {"ETag": '"1"'}, 1))
        return True

    with running_liar() as one, running_liar() as two:
        one.answer = two.answer = content
        yield one, two


def test_a_mirror_that_it_is_not_for_is_asked_without_it(
    liars: tuple[Liar, Liar], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hf_token")
    for sources, shown in (((), [True, True]), ((f"{liars[0].url}/",), [True, False])):
        trust = Trust(credentials=(CredentialFile("c", str(tmp_path / "secret"), sources),))
        for liar in liars:
            liar.asked.clear()
            reference = parse_reference(f"{liar.url}/m.bin")
            origin = open_origin(reference, trust=trust, patience=Patience(), credential="c")
            origin.list()
            origin.close()
        assert ["Authorization" in one.asked[0].headers for one in liars] == shown
