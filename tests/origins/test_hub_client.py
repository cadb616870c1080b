"""The real client of a hub beside ours: it lists, chooses and fetches the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.origins.servers.hub import Hub
from tests.origins.test_contract import read
from tests.origins.test_hub import GGUF, LLAMA, PATIENCE, listed, paths
from weightd.errors import InvalidRequest
from weightd.origins import Trust, open_origin, parse_reference

pytestmark = pytest.mark.needs("huggingface_hub")


@pytest.fixture
def real(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The environment that the real client reads; where it caches."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return tmp_path / "real"


@pytest.mark.parametrize("repository", [LLAMA, GGUF], ids=["framework", "quantised"])
def test_the_real_client_lists_the_same(hub: Hub, real: Path, repository: dict[str, bytes]) -> None:
    from huggingface_hub import HfApi

    hub.push("org/m", repository)
    told = HfApi(endpoint=hub.url).model_info("org/m", files_metadata=True)
    ours = listed("hf://org/m?allow=*")
    assert told.siblings is not None
    theirs = {
        one.rfilename: (one.size, one.lfs.sha256 if one.lfs else None) for one in told.siblings
    }
    assert {file.path: (file.bytes, file.sha256) for file in ours.files} == theirs
    assert ours.revision == told.sha


@pytest.mark.parametrize(
    ("allow", "ignore"),
    [
        (["*.json"], []),
        (["*.safetensors", "tokenizer*"], []),
        ([], ["*.bin", "original/"]),
        (["original/"], ["*.json"]),
        (["model-0000[12]*"], []),
        (["**/*.pth"], []),
        (["*.JSON"], []),
    ],
)
def test_patterns_mean_what_they_mean_to_the_real_client(
    hub: Hub, allow: list[str], ignore: list[str]
) -> None:
    from huggingface_hub.utils._paths import filter_repo_objects

    hub.push("org/m", LLAMA)
    theirs = sorted(
        filter_repo_objects(
            list(LLAMA), allow_patterns=allow or None, ignore_patterns=ignore or None
        )
    )
    query = "&".join([*(f"allow={one}" for one in allow), *(f"ignore={one}" for one in ignore)])
    if not theirs:
        with pytest.raises(InvalidRequest):
            listed(f"hf://org/m?{query}")
        return
    assert paths(listed(f"hf://org/m?{query}")) == theirs


def test_the_real_client_fetches_the_same_bytes(hub: Hub, real: Path) -> None:
    """What is chosen by default is what the real client brings for these patterns, byte by byte."""
    from huggingface_hub import snapshot_download

    hub.push("org/m", LLAMA)
    there = Path(
        snapshot_download(
            "org/m",
            endpoint=hub.url,
            cache_dir=real,
            ignore_patterns=[
                "*.bin", "*.h5", "*.onnx", "original/*", "onnx/*", "consolidated.safetensors"
            ],
        )
    )  # fmt: skip
    theirs = {
        str(path.relative_to(there)): path.read_bytes()
        for path in there.rglob("*")
        if path.is_file()
    }
    origin = open_origin(parse_reference("hf://org/m"), trust=Trust(), patience=PATIENCE)
    try:
        listing = origin.list()
        ours = {file.path: read(origin, file) for file in listing.files}
    finally:
        origin.close()
    assert ours == theirs
    for file in listing.files:
        if file.sha256 is not None:
            assert hashlib.sha256(ours[file.path]).hexdigest() == file.sha256
