"""Which of a repository's files make the model.

A repository often holds the same weights several times: for other frameworks,
in the form they were first published in, or quantised in twenty ways.  Without
patterns of the caller's own, safetensors are taken, what duplicates them is
left, and of a repository of quantisations exactly one must be meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from weightd.origins.contract import RemoteFile
from weightd.origins.reference import invalid
from weightd.units import format_bytes

# From the best on: of several in one directory the first is taken.
_FORMATS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"safetensors"}),
    frozenset({"bin"}),
    frozenset({"pt", "pth", "ckpt"}),
    frozenset({"h5", "msgpack", "ot", "onnx", "onnx_data", "tflite", "mlmodel", "npz"}),
)
# Directories that hold the whole model once more, for something else.
_DUPLICATES: Final = frozenset(
    {"coreml", "flax", "metal", "mlx", "onnx", "openvino", "original", "tensorrt", "tflite"}
)
_SHARD: Final = re.compile(r"-[0-9]{5}-of-[0-9]{5}\Z", re.ASCII)
_QUANTISATION: Final = re.compile(
    r"(?:UD-)?(?:I?Q[1-9](?:_[A-Z0-9]+)*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32|FP16|FP32)\Z",
    re.IGNORECASE | re.ASCII,
)
_BEFORE_QUANTISATION: Final = frozenset("-._/")
_PROJECTORS: Final = ("F16", "BF16", "F32")
_CHOICES_SHOWN: Final = 40


def select(source: str, files: Sequence[RemoteFile], quantisation: str | None) -> list[RemoteFile]:
    """The files to fetch.  Raises InvalidRequest, with the choices, where it depends."""
    quantised = [file for file in files if _is_quantised(file.path)]
    if quantisation is not None:
        if not quantised:
            raise invalid(f"{source} has no GGUF file, of which {quantisation} could be one")
        return _quantised(source, files, quantised, quantisation)
    others = without_duplicates(file for file in files if not file.path.endswith(".gguf"))
    if quantised and not any(_rank(file.path) is not None for file in others):
        return _quantised(source, files, quantised, None)
    return others


# -- Repositories of quantisations -------------------------------------------------


def _quantised(
    source: str,
    files: Sequence[RemoteFile],
    quantised: Iterable[RemoteFile],
    wanted: str | None,
) -> list[RemoteFile]:
    """All shards of the one quantisation, and the projector that a model with eyes needs."""
    groups: dict[tuple[str, str], list[RemoteFile]] = defaultdict(list)
    for file in quantised:
        groups[_group(file.path)].append(file)
    meant = {key: group for key, group in groups.items() if _means(key[1], wanted)}
    exact = {
        key: group for key, group in meant.items() if wanted and key[1].upper() == wanted.upper()
    }
    meant = exact or meant
    if len(meant) != 1:
        raise invalid(_ambiguous(source, meant or groups, wanted, found=bool(meant)))
    (chosen,) = meant.values()
    return [*chosen, *_projector(files)]


def quantisation_of(path: str) -> str | None:
    """The quantisation in a file's name, in capitals.

    >>> quantisation_of("m/Llama-8B-UD-Q4_K_XL-00001-of-00002.gguf")
    'UD-Q4_K_XL'
    >>> quantisation_of("llama-8b.gguf") is None
    True
    """
    stem = _stem(path)
    for start in range(len(stem)):
        before = stem[start - 1] if start else "/"
        if before in _BEFORE_QUANTISATION and _QUANTISATION.match(stem, start):
            return stem[start:].upper()
    return None


def _group(path: str) -> tuple[str, str]:
    """What the shards of one model have in common: where and how it is called, and its kind."""
    stem = _stem(path)
    found = quantisation_of(path)
    return stem, found or stem.rpartition("/")[2]


def _stem(path: str) -> str:
    return _SHARD.sub("", path.removesuffix(".gguf"))


def _is_quantised(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return path.endswith(".gguf") and not name.startswith("mmproj") and "imatrix" not in name


def _means(label: str, wanted: str | None) -> bool:
    """Whether a quantisation is the one that is wanted, with or without its maker's mark."""
    return wanted is None or label.upper() in (wanted.upper(), f"UD-{wanted.upper()}")


def _projector(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """One of the ``mmproj`` files, the best that is there."""
    found = [file for file in files if re.search(r"(\A|/)mmproj[^/]*\.gguf\Z", file.path)]
    for quantisation in _PROJECTORS:
        for file in found:
            if quantisation_of(file.path) == quantisation:
                return [file]
    return found[:1]


def _ambiguous(
    source: str,
    groups: dict[tuple[str, str], list[RemoteFile]],
    wanted: str | None,
    *,
    found: bool,
) -> str:
    """What there is to choose from, and how to say it."""
    labels = [key[1] for key in groups]
    by_label = len(set(labels)) == len(labels) and not (found and wanted)
    shown = []
    for (stem, label), group in sorted(groups.items()):
        size = format_bytes(sum(file.bytes or 0 for file in group))
        shown.append(f"{label if by_label else stem} ({size})")
    choices = ", ".join(shown[:_CHOICES_SHOWN])
    if len(shown) > _CHOICES_SHOWN:
        choices += f" and {len(shown) - _CHOICES_SHOWN} more"
    how = "name one as hf://org/name:QUANTISATION"
    if not by_label:
        how = "name a file as hf://org/name/FILE, or its shards with ?allow="
    what = f"{source} holds several models" if wanted is None or found else f"no {wanted} there"
    return f"{what}; {how}; there are {choices}"


# -- Repositories of frameworks ------------------------------------------------------


def without_duplicates(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """The files without the weights that are there in a better form.

    Directories are looked at one by one, since a part of a model may be there
    in one form only.
    """
    kept = list(files)
    main = [file for file in kept if not _is_duplicate_directory(file.path)]
    if any(_rank(file.path) is not None for file in main):
        kept = main
    best: dict[str, int] = {}
    for file in kept:
        if (rank := _rank(file.path)) is not None:
            directory = _directory(file.path)
            best[directory] = min(rank, best.get(directory, rank))
    chosen = [file for file in kept if _rank(file.path) in (None, best.get(_directory(file.path)))]
    return _without_consolidated(chosen)


def _without_consolidated(files: list[RemoteFile]) -> list[RemoteFile]:
    """Without the second copy that some publishers add under the name ``consolidated``."""
    others = {
        _directory(file.path)
        for file in files
        if file.path.endswith(".safetensors") and not _is_consolidated(file.path)
    }
    return [
        file
        for file in files
        if not (_is_consolidated(file.path) and _directory(file.path) in others)
    ]


def _is_consolidated(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("consolidated") and ".safetensors" in name


def _is_duplicate_directory(path: str) -> bool:
    return path.partition("/")[0].lower() in _DUPLICATES and "/" in path


def _rank(path: str) -> int | None:
    """How good a form of weights a file is, 0 the best; None for what is no weights."""
    extension = path.rpartition(".")[2].lower()
    return next((rank for rank, one in enumerate(_FORMATS) if extension in one), None)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
