"""What requests may say in their query and in their JSON body."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field

from weightd.keys import KEY_BYTES_MAX
from weightd.model import FILES_MAX
from weightd.wire.fields import (
    LIMIT_DEFAULT,
    Bytes,
    CredentialName,
    FilePath,
    Holder,
    JsonBytes,
    JsonTtl,
    KeyText,
    Limit,
    OriginText,
    Place,
    Sequence,
    Sha256,
    Sources,
    Ttl,
    WaitSeconds,
)

Order: TypeAlias = Literal["key", "bytes", "published", "used", "hits", "kept"]
ModelOrder: TypeAlias = Literal[
    "key", "bytes", "published", "used", "hits", "kept",
    "-key", "-bytes", "-published", "-used", "-hits", "-kept",
]  # fmt: skip


class Request(BaseModel):
    """Every field is known, or the request is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Request):
    """The call takes no parameters."""


class ModelsQuery(Request):
    limit: Limit = LIMIT_DEFAULT
    after: KeyText | None = Field(None, description="Answer what follows this key: `next`.")


class PutQuery(Request):
    file: FilePath | None = Field(
        None, description="What to call the single file; else the name's last segment."
    )
    sha256: Sha256 | None = Field(None, description="What the single file must hash to.")
    bytes: Bytes | None = Field(
        None, description="The most that a body of unknown length will come to."
    )
    wait: WaitSeconds = 0.0


class ContentQuery(Request):
    file: FilePath | None = Field(None, description="Which file; needed unless there is but one.")


class PinQuery(Request):
    ttl: Ttl | None = None
    generation: Sha256 | None = Field(
        None, description="Pin exactly this generation: the `generation` of a record."
    )


class EvictionsQuery(Request):
    limit: Limit = LIMIT_DEFAULT
    after: Sequence | None = None


class EventsQuery(Request):
    after: Sequence | None = Field(
        None, description="Answer events from the one after this; 0 is all of this run."
    )


class AdmissionRequest(Request):
    """An arrival to decide about without doing it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={"examples": [{"bytes": 140_000_000_000}]},
    )

    bytes: JsonBytes = Field(description="How large it would be.")
    key: KeyText | None = Field(
        None, description="Under which key, so that what it would replace counts as room."
    )


class PageQuery(Request):
    """Which models the page shows."""

    limit: Limit = LIMIT_DEFAULT
    sort: ModelOrder = Field("-used", description="In which order; `-` begins with the greatest.")
    match: str = Field("", max_length=KEY_BYTES_MAX, description="Only keys with this in them.")

    @property
    def order(self) -> Order:
        return cast(Order, self.sort.removeprefix("-"))


class FetchQuery(Request):
    wait: WaitSeconds = Field(
        0.0, description="Seconds to wait until the model is here, and for room for it."
    )


class FetchRequest(Request):
    """A model to be here, and where it is from if it is not."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={
            "examples": [
                {"key": "org/my-model@v1", "source": "hf://org/my-model@v1"},
                {
                    "key": "org/my-model@v1",
                    "source": ["https://mirror.example/my-model.json", "hf://org/my-model@v1"],
                    "holder": "vllm-7f9c:1",
                    "ttl": 3600,
                },
            ]
        },
    )

    key: KeyText
    source: Sources = Field(description="One reference, or mirrors in the order they are tried.")
    digest: Sha256 | None = Field(
        None, description="The content that it must be, whoever serves it: a record's `digest`."
    )
    holder: Holder | None = Field(None, description="Who pins it as soon as it is here.")
    ttl: JsonTtl = Field(
        None,
        description=(
            "Seconds until the holder's pin lapses unless it is renewed, or `forever`; "
            "600 when it is left out."
        ),
    )
    revalidate: bool = Field(
        False, description="Ask the origin although the key is here: it may have changed there."
    )
    credential: CredentialName | None = Field(
        None,
        description=(
            "Which of the daemon's `credentials` is shown to those sources that it is for; at the "
            "replica socket only one that says `for` which."
        ),
    )


class AdoptQuery(Request):
    wait: WaitSeconds = Field(0.0, description="Seconds to wait for room while blocked.")


class UploadQuery(Request):
    wait: WaitSeconds = Field(0.0, description="Seconds to wait for room while blocked.")


class AnnouncedFile(Request):
    """A file that the writer is about to write."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: FilePath
    bytes: JsonBytes
    sha256: Sha256 | None = Field(None, description="What it must hash to.")


class AdoptedFile(Request):
    """A file that is on the disk already."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: FilePath
    place: Place = Field(description="Where it is: an absolute path with no link on its way.")
    bytes: JsonBytes
    sha256: Sha256 | None = Field(None, description="What it must hash to.")
    trusted: bool = Field(
        False, description="Take the hash as it is announced, without reading the file."
    )
    keep: bool = Field(
        False, description="Leave the file where it is, and share its blocks; else it is renamed."
    )
    copy_: bool = Field(
        False, alias="copy", description="Copy it where it can be neither renamed nor shared."
    )


class AdoptRequest(Request):
    """Files that are on the root's filesystem already, to be a model without being copied."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "key": "org/my-model@v1",
                    "files": [
                        {
                            "path": "model.safetensors",
                            "place": "/data/my-model/model.safetensors",
                            "bytes": 140_000_000_000,
                        },
                    ],
                }
            ]
        },
    )

    key: KeyText
    files: list[AdoptedFile] = Field(min_length=1, max_length=FILES_MAX)
    source: OriginText | None = Field(None, description="Where it came from once, for the record.")
    revision: OriginText | None = Field(None, description="Which revision of that it is.")


class UploadRequest(Request):
    """Files that a writer on this node writes himself."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "key": "org/my-model@v1",
                    "files": [
                        {"path": "config.json", "bytes": 663},
                        {"path": "model.safetensors", "bytes": 140_000_000_000},
                    ],
                }
            ]
        },
    )

    key: KeyText
    files: list[AnnouncedFile] = Field(min_length=1, max_length=FILES_MAX)
    trusted: bool = Field(
        False,
        description="Take the hashes as they are announced, of every file, without reading them.",
    )
