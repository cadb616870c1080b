"""What requests may say in their query and in their JSON body."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from weightd.wire.fields import (
    LIMIT_DEFAULT,
    Bytes,
    FilePath,
    JsonBytes,
    KeyText,
    Limit,
    Sequence,
    Sha256,
    Ttl,
    WaitSeconds,
)


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
