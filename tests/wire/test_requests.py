"""What requests may say."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from weightd.wire.fields import LIMIT_MAX, TTL_SECONDS_MAX, WAIT_SECONDS_MAX
from weightd.wire.requests import AdmissionRequest, ModelsQuery, PinQuery, PutQuery, Request


@pytest.mark.parametrize(
    ("ttl", "read"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("forever", "forever"),
        (str(TTL_SECONDS_MAX), float(TTL_SECONDS_MAX)),
    ],
)
def test_a_ttl_is_seconds_or_forever(ttl: str, read: float | str) -> None:
    assert PinQuery.model_validate({"ttl": ttl}).ttl == read


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        (PinQuery, {"ttl": "0"}),
        (PinQuery, {"ttl": "0.0"}),
        (PinQuery, {"ttl": "nan"}),
        (PinQuery, {"ttl": "infinity"}),
        (PinQuery, {"ttl": " 5"}),
        (PinQuery, {"ttl": "٣"}),
        (PinQuery, {"ttl": str(TTL_SECONDS_MAX + 1)}),
        (PutQuery, {"wait": str(WAIT_SECONDS_MAX + 1)}),
        (PutQuery, {"bytes": "1e3"}),
        (PutQuery, {"bytes": str(2**63)}),
        (PutQuery, {"file": "a/./b"}),
        (ModelsQuery, {"limit": str(LIMIT_MAX + 1)}),
        (ModelsQuery, {"limit": "٣"}),
        (ModelsQuery, {"offset": "1"}),
        (AdmissionRequest, {"bytes": "1"}),
        (AdmissionRequest, {"bytes": True}),
    ],
)
def test_what_is_not_of_the_form_is_refused(shape: type[Request], given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        shape.model_validate(given)


def test_a_sha256_is_folded_to_lower_case() -> None:
    assert PutQuery.model_validate({"sha256": "AB" * 32}).sha256 == "ab" * 32
