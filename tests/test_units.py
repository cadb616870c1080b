"""Bytes and durations: exact, both families, and the accepted form in every refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightd.units import format_bytes, parse_bytes, parse_duration, parse_share, round_up

FACTORS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}


@given(st.integers(0, 10**9), st.sampled_from(sorted(FACTORS)), st.sampled_from(["", " "]))
def test_whole_numbers_are_exact_in_every_unit(number: int, unit: str, space: str) -> None:
    for spelled in (unit, unit.lower(), unit.upper()):
        assert parse_bytes(f"{number}{space}{spelled}") == number * FACTORS[unit]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1.5TiB", 1649267441664),
        ("0.1GB", 10**8),
        ("1.000000001GB", 1000000001),
        ("0.9", 0),
        ("1.9B", 1),
    ],
)
def test_fractions_are_decimal_and_cut_off(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@given(st.integers(0, 10**18 - 1))
def test_gigabytes_and_gibibytes_are_never_mixed(count: int) -> None:
    assert parse_bytes(f"{count}GB") <= parse_bytes(f"{count}GiB")


@pytest.mark.parametrize(
    "text", ["", " ", "GB", "-1GB", "1e9", "1,5GB", "1 G", "0x10", "5%", "٣GB"]
)
def test_bytes_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="a number of bytes such as 400GB"):
        parse_bytes(text)


@given(st.text(max_size=20))
def test_any_text_is_an_amount_or_refused_with_the_form(text: str) -> None:
    for parse in (parse_bytes, parse_duration, lambda one: parse_share(one, 10**12)):
        outcome = attempt(parse, text)
        assert outcome >= 0 if isinstance(outcome, int | float) else "such as" in outcome


def attempt(parse: Callable[[str], float], text: str) -> float | str:
    """What came of it: an amount, or the words of the refusal."""
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("250ms", 0.25),
        ("1.5 H", 5400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 100), st.integers(0, 10**18))
def test_share_never_exceeds_the_whole(percent: int, whole: int) -> None:
    assert 0 <= parse_share(f"{percent}%", whole) <= whole
    assert parse_share("100%", whole) == whole


def test_share_over_the_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 100%"):
        parse_share("100.1%", 10**9)


@given(st.integers(0, 10**17))
def test_printed_bytes_read_back_to_within_what_is_printed(count: int) -> None:
    text = format_bytes(count)
    unit = FACTORS[text.split()[1]]
    assert abs(parse_bytes(text) - count) <= unit * 0.0501
    assert len(text) <= len("999.9 MB")


@given(st.integers(0, 10**18), st.sampled_from([512, 4096, 2**20]))
def test_rounding_up_is_the_least_multiple_that_holds_it(count: int, block: int) -> None:
    rounded = round_up(count, block)
    assert rounded % block == 0
    assert count <= rounded < count + block
