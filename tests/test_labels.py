"""Labels of models: valid for Kubernetes, one for each key, and the same on every node."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weightd.cli.main import main
from weightd.keys import KEY_BYTES_MAX, key_fault
from weightd.labels import label_of

_FIRST = string.ascii_letters + string.digits
_SEGMENTS = st.builds(
    str.__add__, st.sampled_from(_FIRST), st.text(_FIRST + "._-", max_size=60)
) | st.text("aA0", min_size=1, max_size=3)
# Few letters, so that keys which differ in what is mapped alone meet.
_NEAR = st.builds(str.__add__, st.sampled_from("a0"), st.text("a_-.0", max_size=4))
_KEYS = st.builds(
    lambda segments, revision: "/".join(segments) + ("" if revision is None else f"@{revision}"),
    st.lists(_SEGMENTS | _NEAR, min_size=1, max_size=6),
    st.none() | _SEGMENTS | _NEAR,
).filter(lambda key: len(key) <= KEY_BYTES_MAX)

# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


def is_label(text: str) -> bool:
    prefix, slash, name = text.partition("/")
    return (prefix, slash) == ("weightd.io", "/") and _NAME.fullmatch(name) is not None


@given(_KEYS)
def test_every_key_has_a_valid_label(key: str) -> None:
    assert key_fault(key) is None
    assert is_label(label_of(key))


@given(_KEYS, st.data())
def test_no_two_keys_have_one_label(key: str, data: st.DataObject) -> None:
    # Keys that differ in nothing but what a label writes otherwise.
    written = re.split("([/@_]+)", key)
    marks = st.sampled_from(["/", "@", "_", "__", "_/", "_@"])
    written[1::2] = [data.draw(marks) for _ in written[1::2]]
    other = "".join(written)
    assume(key != other and key_fault(other) is None)
    assert label_of(key) != label_of(other)


@given(_KEYS)
def test_no_key_takes_the_label_of_one_that_was_shortened(key: str) -> None:
    name = label_of(key).removeprefix("weightd.io/model.")
    if key_fault(name) is None and name != key:
        assert label_of(name) != label_of(key)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("llama", "llama"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama_Llama-3.1-8B-Instruct"),
        ("a/b/c@v1", "a_b_c__v1"),
        ("a_b", "a_b-648fa9b31b"),
        ("a.", "a.-5ab640fad5"),
        ("org/" + 53 * "m", "org_" + 53 * "m"),
        ("org/" + 54 * "m", "org_" + 42 * "m" + "-174cd67c93"),
        ("org/m-0123456789", "org_m-0123456789-9bb6e4116a"),
    ],
)
def test_a_label_is_the_same_ever_after(key: str, name: str) -> None:
    # Affinities out there name it, and nodes of another release carry it.
    assert label_of(key) == f"weightd.io/model.{name}"


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label", "org/m@v1"]) == 0
    assert capsys.readouterr().out == "weightd.io/model.org_m__v1\n"
    assert main(["label", "org//m"]) == 2
    assert "segment is empty" in capsys.readouterr().err
