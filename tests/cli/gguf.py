"""A model as llama.cpp reads it: tiny, valid, with random weights."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

WIDE: Final = 64
INNER: Final = 128
LAYERS: Final = 2
HEADS: Final = 4
ALIGNMENT: Final = 32

Value = int | float | str | Sequence[int] | Sequence[float] | Sequence[str]

_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_TENSOR_OF_FLOAT32 = 0

_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6
"""Kinds of tokens."""


def write_model(path: Path) -> None:
    """Write a llama of two layers that knows bytes for words."""
    tensors = dict(_tensors(np.random.default_rng(1)))
    settings = _settings()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    for name, value in settings.items():
        head += _string(name) + _value(value)
    at = 0
    for name, tensor in tensors.items():
        sizes = tuple(reversed(tensor.shape))
        head += _string(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", _TENSOR_OF_FLOAT32, at)
        at += _aligned(tensor.nbytes)
    with path.open("wb") as file:
        file.write(head.ljust(_aligned(len(head)), b"\0"))
        for tensor in tensors.values():
            file.write(tensor.tobytes().ljust(_aligned(tensor.nbytes), b"\0"))


def _settings() -> Mapping[str, Value]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return {
        "general.architecture": "llama",
        "llama.context_length": 4096,
        "llama.embedding_length": WIDE,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256],
    }


def _tensors(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors, each of as many rows as it makes numbers."""

    def drawn(*sizes: int) -> np.ndarray:
        return (random.standard_normal(sizes) * 0.05).astype("<f4")

    words = 259
    ones = np.ones(WIDE, "<f4")
    yield "token_embd.weight", drawn(words, WIDE)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones
        yield f"{block}.ffn_norm.weight", ones
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{block}.{part}.weight", drawn(WIDE, WIDE)
        yield f"{block}.ffn_gate.weight", drawn(INNER, WIDE)
        yield f"{block}.ffn_up.weight", drawn(INNER, WIDE)
        yield f"{block}.ffn_down.weight", drawn(WIDE, INNER)
    yield "output_norm.weight", ones
    yield "output.weight", drawn(words, WIDE)


def _value(value: Value) -> bytes:
    """A value of the head, its kind before it."""
    if isinstance(value, str | int | float):
        return struct.pack("<I", _kind(value)) + _plain(value)
    kind = _INT32 if isinstance(value[0], int) else _kind(value[0])
    head = struct.pack("<IIQ", _ARRAY, kind, len(value))
    return head + b"".join(_plain(one) for one in value)


def _kind(value: object) -> int:
    if isinstance(value, str):
        return _STRING
    return _UINT32 if isinstance(value, int) else _FLOAT32


def _plain(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack("<I" if isinstance(value, int) else "<f", value)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
