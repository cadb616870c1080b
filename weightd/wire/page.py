"""What the page at `/` is told every few seconds."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from weightd.wire.answers import Count, EvictionShape, Hash, Named, Size, StatusShape


class KeeperShape(BaseModel):
    """A pin, or a hold or use that the kernel tells."""

    kind: Literal["pin", "hold", "use"]
    holder: str | None = Field(description="Who pins; null for a hold or a use.")
    since: datetime
    until: datetime | None = Field(description="When the pin lapses unless it is renewed.")
    forever: bool
    pid: int | None
    process: str | None


class PageModel(BaseModel):
    """A generation, and who keeps it."""

    key: Named
    generation: Hash
    current: bool = Field(description="False once another generation of the key was published.")
    bytes: Size
    published_at: datetime
    last_used_at: datetime
    hits: Count
    source: str | None
    pins: Count
    use: Literal["hold", "use"] | None = Field(description="What the kernel says of it.")
    keepers: list[KeeperShape] = Field(description="Some of those who keep it.")
    keepers_total: Count


class PageArrival(BaseModel):
    """What is on its way here, however it comes."""

    kind: Literal["put", "upload", "adoption", "fetch"]
    key: Named
    state: str = Field(description="`waiting` is for room; a fetch has more states.")
    bytes_done: Size
    bytes_total: int | None = Field(ge=0, description="Null while nobody knows.")
    rate: float | None = Field(description="Bytes a second, where it is known.")
    eta: float | None = Field(description="Seconds to go at that rate.")
    since: datetime
    source: str | None
    attempts: Count = Field(description="Failures of the origin one after another.")
    retry_at: datetime | None


class PageFailure(BaseModel):
    """A fetch that ended without its model."""

    key: Named
    source: str
    at: datetime | None
    code: str
    detail: str
    retryable: bool


class PageRefusal(BaseModel):
    """An arrival that got no room, and what its caller was told."""

    key: Named
    code: Literal["too-large", "blocked", "disk-full"]
    detail: str = Field(description="What happened, and what to do.")
    retryable: bool
    bytes: Size
    first_at: datetime
    last_at: datetime
    count: Count = Field(description="How often since then.")


class PageShape(BaseModel):
    """All that the page shows, taken at one instant."""

    now: datetime
    node: str
    socket: str | None = Field(description="Where the admin socket is.")
    status: StatusShape
    held_bytes: Size = Field(description="Of what the kernel says is held or in use.")
    refetched_bytes: Size = Field(description="Evicted, and here again within a day.")
    unwell: str | None = Field(description="What /healthz would say is wrong.")
    unwritable: str | None = Field(description="Why the last pin could not be written down.")
    generations: Count
    matching: Count = Field(description="How many of them have `match` in their key.")
    models: list[PageModel] = Field(description="Of those, the first `limit` in order of `sort`.")
    arrivals: list[PageArrival]
    arrivals_total: Count
    failures: list[PageFailure]
    evictions: list[EvictionShape]
    refusals: list[PageRefusal]
