"""The types of single fields, each with the form it takes and the schema that documents it."""

from __future__ import annotations

import math
import os
import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from weightd.keys import KEY_BYTES_MAX, KEY_SEGMENTS_MAX
from weightd.model import (
    FILE_PATH_BYTES_MAX,
    OWN_HOLDERS,
    file_path_fault,
    parse_callers_holder,
    parse_sha256,
)

BYTES_MAX: Final = 2**63 - 1
LIMIT_MAX: Final = 1000
LIMIT_DEFAULT: Final = 100
TTL_SECONDS_MAX: Final = 366 * 86400
WAIT_SECONDS_MAX: Final = 3600
SOURCES_MAX: Final = 16
SOURCE_CHARACTERS_MAX: Final = 4096
PLACE_BYTES_MAX: Final = 4095

_SEGMENT: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"
_FILE_SEGMENT: Final = "[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
KEY_PATTERN: Final = f"^{_SEGMENT}(/{_SEGMENT}){{0,{KEY_SEGMENTS_MAX - 1}}}(@{_SEGMENT})?$"
HOLDER_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
CREDENTIAL_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SHA256_PATTERN: Final = "^[0-9a-f]{64}$"

KEY_SCHEMA: Final[dict[str, object]] = {
    "type": "string",
    "pattern": KEY_PATTERN,
    "minLength": 1,
    "maxLength": KEY_BYTES_MAX,
    "examples": ["meta-llama/Llama-3.1-70B@main"],
}
HOLDER_SCHEMA: Final[dict[str, object]] = {
    "type": "string",
    "pattern": HOLDER_PATTERN,
    "not": {"pattern": f"^{OWN_HOLDERS}"},
    "examples": ["vllm-7f9c:1"],
}

_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,32})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def _whole(text: object) -> object:
    """Read a whole number as the query writes it: digits and nothing else."""
    if isinstance(text, str) and not _WHOLE.fullmatch(text):
        raise ValueError("it is not a whole number")
    return text


def _json_integer(value: object) -> object:
    """Read an integer of JSON, to which 5.0 is one and true is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _seconds(text: object) -> object:
    """Read seconds as the query writes them: never negative, NaN or infinite."""
    if isinstance(text, str):
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise ValueError("it is not a number of seconds such as 30 or 0.5")
        return float(text)
    return text


def _ttl(text: object) -> object:
    if text == "forever":
        return text
    if isinstance(text, str) and not _NUMBER.fullmatch(text):
        raise ValueError("it is neither a number of seconds such as 3600 nor 'forever'")
    seconds = _seconds(text)
    if not isinstance(seconds, float) or not 0 < seconds <= TTL_SECONDS_MAX:
        raise ValueError(
            f"it must be more than 0 and at most {TTL_SECONDS_MAX} seconds, or 'forever'"
        )
    return seconds


def _json_ttl(value: object) -> object:
    """The same of JSON, where seconds are a number and true is none."""
    if value is None or value == "forever":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is neither a number of seconds such as 3600 nor 'forever'")
    if not 0 < value <= TTL_SECONDS_MAX:
        raise ValueError(
            f"it must be more than 0 and at most {TTL_SECONDS_MAX} seconds, or 'forever'"
        )
    return float(value)


def _sources(value: object) -> object:
    """One reference, or several in the order in which they are tried."""
    sources = [value] if isinstance(value, str) else value
    if not isinstance(sources, list) or not 1 <= len(sources) <= SOURCES_MAX:
        raise ValueError(
            f"it must be a reference such as 'hf://org/name', or a list of 1 to {SOURCES_MAX}"
        )
    for source in sources:
        if not isinstance(source, str) or not 1 <= len(source) <= SOURCE_CHARACTERS_MAX:
            raise ValueError(f"a reference is text of 1 to {SOURCE_CHARACTERS_MAX} characters")
    return tuple(sources)


def _file(path: str) -> str:
    fault = file_path_fault(path)
    if fault is not None:
        raise ValueError(f"it cannot name a file of a model: {fault}")
    return path


def _place(path: str) -> str:
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(one in ("", ".", "..") for one in parts[1:]):
        raise ValueError("it is not an absolute path without '.', '..' and empty parts")
    if "\0" in path or len(os.fsencode(path)) > PLACE_BYTES_MAX:
        raise ValueError(f"a path has no NUL, and at most {PLACE_BYTES_MAX} bytes")
    return path


# A validator that runs before stands after the bounds: in front of them it would hide them from
# the schema.
Limit: TypeAlias = Annotated[
    int,
    Field(ge=1, le=LIMIT_MAX, description="How many to answer at most.", examples=[50]),
    BeforeValidator(_whole),
]
Sequence: TypeAlias = Annotated[
    int,
    Field(ge=0, le=BYTES_MAX, description="Answer what follows this number."),
    BeforeValidator(_whole),
]
Bytes: TypeAlias = Annotated[int, Field(ge=0, le=BYTES_MAX), BeforeValidator(_whole)]

JsonBytes: TypeAlias = Annotated[int, Field(ge=0, le=BYTES_MAX), BeforeValidator(_json_integer)]

WaitSeconds: TypeAlias = Annotated[
    float,
    Field(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait while blocked.", examples=[30]),
    BeforeValidator(_seconds),
]

Ttl: TypeAlias = Annotated[
    float | Literal["forever"],
    BeforeValidator(_ttl),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": TTL_SECONDS_MAX},
                {"const": "forever"},
            ]
        }
    ),
    Field(
        description=(
            "Seconds until the pin lapses unless it is renewed, or `forever` for a pin that "
            "outlives a reboot of the node."
        ),
        examples=[3600],
    ),
]

JsonTtl: TypeAlias = Annotated[
    float | Literal["forever"] | None,
    BeforeValidator(_json_ttl),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": TTL_SECONDS_MAX},
                {"const": "forever"},
                {"type": "null"},
            ]
        }
    ),
]

_SOURCE_SCHEMA: Final[dict[str, object]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": SOURCE_CHARACTERS_MAX,
}

Sources: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(_sources),
    WithJsonSchema(
        {
            "anyOf": [
                _SOURCE_SCHEMA,
                {
                    "type": "array",
                    "items": _SOURCE_SCHEMA,
                    "minItems": 1,
                    "maxItems": SOURCES_MAX,
                },
            ]
        }
    ),
]

CredentialName: TypeAlias = Annotated[str, Field(pattern=CREDENTIAL_PATTERN)]

Holder: TypeAlias = Annotated[
    str, AfterValidator(parse_callers_holder), WithJsonSchema(HOLDER_SCHEMA)
]

Sha256: TypeAlias = Annotated[
    str,
    AfterValidator(parse_sha256),
    WithJsonSchema({"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"}),
]

Place: TypeAlias = Annotated[
    str,
    AfterValidator(_place),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 2,
            "maxLength": PLACE_BYTES_MAX,
            "pattern": f"^(/{_FILE_SEGMENT})+$",
            "description": "An absolute path; other names work too, `.` and `..` do not.",
            "examples": ["/data/my-model/model.safetensors"],
        }
    ),
]

OriginText: TypeAlias = Annotated[str, Field(min_length=1, max_length=SOURCE_CHARACTERS_MAX)]

FilePath: TypeAlias = Annotated[
    str,
    AfterValidator(_file),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": FILE_PATH_BYTES_MAX,
            "pattern": f"^{_FILE_SEGMENT}(/{_FILE_SEGMENT}){{0,3}}$",
            "description": "A path below the model's directory; other printable names work too.",
            "examples": ["model-00001-of-00030.safetensors"],
        }
    ),
]

KeyText: TypeAlias = Annotated[str, WithJsonSchema(KEY_SCHEMA)]
