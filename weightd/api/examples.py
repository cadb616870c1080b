"""One error of each class, with figures from the worked example, for the OpenAPI description."""

from __future__ import annotations

from typing import Final

from weightd import errors
from weightd.api import faults
from weightd.errors import HolderFigures, WeightdError

_KEY: Final = "meta-llama/Llama-3.1-70B"
_DIGEST: Final = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
_OTHER: Final = "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9"
_SOURCE: Final = "hf://meta-llama/Llama-3.1-70B"
_HOLDERS: Final = (HolderFigures("vllm-7f9c:1", _KEY, 140_000_000_000, 1772366700.0, None),)

EXAMPLES: Final[dict[type[WeightdError], WeightdError]] = {
    type(error): error
    for error in (
        errors.InvalidKey("org//model", "a segment is empty"),
        errors.InvalidRequest("limit", "'0': input should be greater than or equal to 1"),
        errors.InvalidArchive("it is a symbolic link", "model/config.json"),
        errors.IncompleteBody(4096, 8192),
        errors.Forbidden(
            "PUT /v1/models/{key} is not answered at the read-only door", "the admin socket"
        ),
        errors.Unauthorized("The request has no token", "the admin socket"),
        faults.UnknownRoute("/v2/models"),
        errors.NotResident(_KEY),
        errors.NotPinned("vllm-7f9c:1", _KEY),
        errors.GenerationGone(_KEY, _DIGEST),
        errors.UnknownFile(_KEY, "weights.bin"),
        errors.UnknownUpload("0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        errors.UnknownFetch("5f0c9a1e7b3d2846"),
        faults.WrongMethod("POST", ("GET", "HEAD")),
        errors.Stalled("The request's body", 60.0),
        errors.Pinned(_KEY, _HOLDERS),
        errors.InUse(_KEY, "a process has model.safetensors open or mapped"),
        errors.Busy(_KEY, "5f0c9a1e7b3d2846", "s3://weights/llama-3.1-70b"),
        errors.FetchCancelled(_KEY, "it was deleted"),
        errors.Exists(_KEY, _DIGEST),
        faults.PreconditionFailed(_DIGEST),
        errors.TooLarge(400_000_000_000, 300_000_000_000),
        faults.UnsupportedMediaType("Content-Encoding", "gzip"),
        faults.RangeNotSatisfiable("bytes=900-", 855),
        errors.DigestMismatch(_DIGEST, _OTHER, "model.safetensors"),
        errors.TooMany("puts under way", 64),
        faults.Internal(),
        errors.IoError("write model.safetensors", "Input/output error"),
        errors.OriginFailed(_SOURCE, "Too Many Requests", 429, retry_after=30),
        errors.OriginChanged(_SOURCE, "model.safetensors has another ETag", 412),
        errors.OriginTimeout(_SOURCE, "the listing", 30.0),
        errors.Blocked(
            "pins",
            200_000_000_000,
            15_000_000_000,
            145_000_000_000,
            140_000_000_000,
            0,
            _HOLDERS,
        ),
        errors.StateUnwritable("database or disk is full"),
        errors.Starting(),
        errors.Draining(),
        faults.Unhealthy(5.0),
        errors.DiskFull(140_000_000_000, 90_000_000_000, 20_000_000_000, 700_000_000_000),
    )
}
