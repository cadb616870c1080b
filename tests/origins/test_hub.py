"""A hub: what is chosen of a repository, how it is asked, and what the real client makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.hub import Hub
from tests.origins.test_contract import read
from weightd.errors import InvalidRequest, OriginChanged, OriginFailed
from weightd.origins import Listing, Patience, Trust, open_origin, parse_reference
from weightd.origins.contract import CredentialFile

PATIENCE: Final = Patience(10.0, 20.0)

LLAMA: Final = {
    path: path.encode() * 100
    for path in (
        ".gitattributes",
        "README.md",
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
        "original/consolidated.00.pth",
        "original/params.json",
        "onnx/model.onnx",
        "tf_model.h5",
        "consolidated.safetensors",
    )
}
LLAMA_CHOSEN: Final = [
    ".gitattributes",
    "README.md",
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "tokenizer.json",
]
GGUF: Final = {
    path: path.encode() * 10
    for path in (
        "README.md",
        "config.json",
        "Llama-8B-Q4_K_M.gguf",
        "Llama-8B-Q8_0.gguf",
        "Llama-8B-IQ2_XXS.gguf",
        "UD-Q4_K_XL/Llama-8B-UD-Q4_K_XL-00001-of-00002.gguf",
        "UD-Q4_K_XL/Llama-8B-UD-Q4_K_XL-00002-of-00002.gguf",
        "BF16/Llama-8B-BF16-00001-of-00002.gguf",
        "BF16/Llama-8B-BF16-00002-of-00002.gguf",
        "imatrix_unsloth.gguf",
    )
}


def listed(reference: str, trust: Trust | None = None, credential: str | None = None) -> Listing:
    origin = open_origin(
        parse_reference(reference),
        trust=trust or Trust(),
        patience=PATIENCE,
        credential=credential,
    )
    try:
        return origin.list()
    finally:
        origin.close()


def paths(listing: Listing) -> list[str]:
    return [file.path for file in listing.files]


def contents(names: Iterable[str]) -> dict[str, bytes]:
    return {name: name.encode() for name in names}


# -- What is chosen ------------------------------------------------------------------


def test_safetensors_are_taken_and_duplicates_left(hub: Hub) -> None:
    commit = hub.push("meta/llama", LLAMA)
    listing = listed("hf://meta/llama")
    assert paths(listing) == LLAMA_CHOSEN
    assert listing.revision == commit


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        # A part of a model that is there in one form only is not left out.
        (
            ["model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin"],
            ["2_Dense/pytorch_model.bin", "model.safetensors"],
        ),
        (["pytorch_model.bin", "tf_model.h5", "model.onnx"], ["pytorch_model.bin"]),
        (["model.pt", "model.h5"], ["model.pt"]),
        (["onnx/model.onnx", "config.json"], ["config.json", "onnx/model.onnx"]),
        (["original/a.pth", "README.md"], ["README.md", "original/a.pth"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
        (["model.safetensors", "model-Q4_K_M.gguf"], ["model.safetensors"]),
        (["model-Q4_K_M.gguf", "config.json"], ["model-Q4_K_M.gguf"]),
        (["model.gguf"], ["model.gguf"]),
        (["README.md", "config.json"], ["README.md", "config.json"]),
    ],
)
def test_what_a_bare_repository_is(hub: Hub, there: list[str], chosen: list[str]) -> None:
    hub.push("org/m", contents(there))
    assert paths(listed("hf://org/m")) == chosen


@pytest.mark.parametrize(
    ("quantisation", "chosen"),
    [
        ("Q4_K_M", ["Llama-8B-Q4_K_M.gguf"]),
        ("q8_0", ["Llama-8B-Q8_0.gguf"]),
        ("IQ2_XXS", ["Llama-8B-IQ2_XXS.gguf"]),
        ("BF16", [f"BF16/Llama-8B-BF16-0000{n}-of-00002.gguf" for n in (1, 2)]),
        (
            "UD-Q4_K_XL",
            [f"UD-Q4_K_XL/Llama-8B-UD-Q4_K_XL-0000{n}-of-00002.gguf" for n in (1, 2)],
        ),
        ("Q4_K_XL", [f"UD-Q4_K_XL/Llama-8B-UD-Q4_K_XL-0000{n}-of-00002.gguf" for n in (1, 2)]),
    ],
)
def test_one_quantisation_with_all_its_shards(
    hub: Hub, quantisation: str, chosen: list[str]
) -> None:
    hub.push("org/gguf", GGUF)
    assert paths(listed(f"hf://org/gguf:{quantisation}")) == chosen


@pytest.mark.parametrize("reference", ["hf://org/gguf", "hf://org/gguf:Q2_K"])
def test_many_quantisations_are_listed_as_choices(hub: Hub, reference: str) -> None:
    hub.push("org/gguf", GGUF)
    with pytest.raises(InvalidRequest) as raised:
        listed(reference)
    for choice in ("Q4_K_M", "Q8_0", "IQ2_XXS", "UD-Q4_K_XL", "BF16"):
        assert f"{choice} (" in raised.value.reason
    assert "hf://org/name:QUANTISATION" in raised.value.reason


def test_several_models_in_one_quantisation_are_named_by_file(hub: Hub) -> None:
    hub.push("org/m", contents(["small.Q4_K_M.gguf", "large.Q4_K_M.gguf"]))
    with pytest.raises(InvalidRequest, match=r"large.Q4_K_M.*small.Q4_K_M"):
        listed("hf://org/m:Q4_K_M")
    assert paths(listed("hf://org/m/small.Q4_K_M.gguf")) == ["small.Q4_K_M.gguf"]


def test_a_projector_comes_along(hub: Hub) -> None:
    names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"]
    hub.push("org/eyes", contents(names))
    assert paths(listed("hf://org/eyes:Q4_K_M")) == ["m-Q4_K_M.gguf", "mmproj-F16.gguf"]


def test_a_repository_without_gguf_has_no_quantisation(hub: Hub) -> None:
    hub.push("meta/llama", LLAMA)
    with pytest.raises(InvalidRequest, match="no GGUF"):
        listed("hf://meta/llama:Q4_K_M")


def test_patterns_replace_the_default(hub: Hub) -> None:
    hub.push("meta/llama", LLAMA)
    assert paths(listed("hf://meta/llama?allow=original/*")) == [
        "original/consolidated.00.pth",
        "original/params.json",
    ]
    found = paths(listed("hf://meta/llama?allow=*.json&allow=*.bin&ignore=tok*&ignore=original/"))
    assert found == [
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
    ]
    with pytest.raises(InvalidRequest, match="patterns"):
        listed("hf://meta/llama?allow=*.nothing")


def test_a_subfolder_is_the_model(hub: Hub) -> None:
    hub.push("org/m", contents(["a/config.json", "a/b/w.bin", "ab/x.bin", "config.json"]))
    assert paths(listed("hf://org/m/a")) == ["b/w.bin", "config.json"]
    assert paths(listed("hf://org/m/a/b/w.bin")) == ["w.bin"]
    with pytest.raises(OriginFailed, match="'c'") as raised:
        listed("hf://org/m/c")
    assert not raised.value.retryable


# -- How it is asked -----------------------------------------------------------------


def test_bytes_come_from_the_commit_that_was_listed(hub: Hub) -> None:
    """A push in between changes nothing for who has listed."""
    first = hub.push("org/m", {"model.safetensors": b"old" * 1000, "config.json": b"{}"})
    origin = open_origin(parse_reference("hf://org/m"), trust=Trust(), patience=PATIENCE)
    try:
        listing = origin.list()
        second = hub.push("org/m", {"model.safetensors": b"new" * 1000, "config.json": b"{}"})
        weights = next(file for file in listing.files if file.path == "model.safetensors")
        assert read(origin, weights) == b"old" * 1000
        assert listing.revision == first
        again = origin.list()
        assert again.revision == second
        # What did not change is told to be the same.
        unchanged = next(file for file in again.files if file.path == "config.json")
        before = next(file for file in listing.files if file.path == "config.json")
        assert unchanged.validator == before.validator
        hub.squash("org/m")
        with pytest.raises(OriginChanged):
            read(origin, weights)
    finally:
        origin.close()
    assert paths(listed(f"hf://org/m@{second}")) == ["config.json", "model.safetensors"]
    assert listed("hf://org/m@refs/pr/1").revision == second


def test_a_renamed_repository_is_read_under_its_new_name(hub: Hub) -> None:
    hub.push("new/m", {"model.safetensors": b"weights"})
    hub.renamed["old/m"] = "new/m"
    origin = open_origin(parse_reference("hf://old/m"), trust=Trust(), patience=PATIENCE)
    try:
        assert read(origin, origin.list().files[0]) == b"weights"
    finally:
        origin.close()


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("hf://org/none", "Repository not found (404)"),
        ("hf://org/m@v9", "Invalid rev id: v9 (404)"),
    ],
)
def test_what_is_not_there(hub: Hub, reference: str, words: str) -> None:
    hub.push("org/m", {"a": b""})
    with pytest.raises(OriginFailed) as raised:
        listed(reference)
    assert raised.value.words == words
    assert not raised.value.retryable


TOKEN: Final = "hf_abcdefghijklmnop"


def _by_variable(monkeypatch: pytest.MonkeyPatch, base: Path) -> Trust:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return Trust()


def _by_path(monkeypatch: pytest.MonkeyPatch, base: Path) -> Trust:
    (base / "t").write_text(TOKEN + "\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(base / "t"))
    return Trust()


def _by_home(monkeypatch: pytest.MonkeyPatch, base: Path) -> Trust:
    (base / ".cache/huggingface").mkdir(parents=True)
    (base / ".cache/huggingface/token").write_text(TOKEN)
    return Trust()


def _by_name(monkeypatch: pytest.MonkeyPatch, base: Path) -> Trust:
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    (base / "t").write_text(TOKEN)
    return Trust(credentials=(CredentialFile("hub", str(base / "t")),))


@pytest.mark.parametrize("way", [_by_variable, _by_path, _by_home, _by_name])
def test_a_token_goes_to_the_hub_and_no_further(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: object
) -> None:
    hub.token = TOKEN
    hub.push("org/m", {"model.safetensors": b"weights", "config.json": b"{}"})
    assert callable(way)
    trust = way(monkeypatch, tmp_path)
    credential = "hub" if trust.credentials else None
    origin = open_origin(
        parse_reference("hf://org/m"), trust=trust, patience=PATIENCE, credential=credential
    )
    try:
        for file in origin.list().files:
            assert read(origin, file) in (b"weights", b"{}")
    finally:
        origin.close()
    elsewhere = [one for one in hub.asked if one.host.startswith("localhost")]
    assert elsewhere
    assert not any(one.authorization for one in elsewhere)


@pytest.mark.parametrize("token", [None, "hf_wrong"])
def test_a_gated_repository_says_what_is_missing(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    hub.token = TOKEN
    hub.push("org/m", {"a": b""})
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(OriginFailed) as raised:
        listed("hf://org/m")
    assert raised.value.http_status == 401
    assert not raised.value.retryable
    assert "Access to model is restricted." in raised.value.words
    expected = "no credential was sent; set HF_TOKEN" if token is None else "the token of HF_TOKEN"
    assert expected in raised.value.words
    assert "hf_wrong" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint", ["http://169.254.169.254", "ftp://x", "http://u:p@127.0.0.1", "hub"]
)
def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(OriginFailed, match="endpoint"):
        listed("hf://org/m")
