"""From a problem document to the error that it tells of: the same classes as inside weightd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from weightd import errors
from weightd.client.effects import Answer
from weightd.client.faults import Refused
from weightd.client.times import epoch_or_none
from weightd.errors import HolderFigures, WeightdError

_CLASSES: Final[dict[str, type[WeightdError]]] = {
    kind.code: kind
    for kind in (getattr(errors, name) for name in errors.__all__)
    # A body that broke off shares its code with what the caller wrote wrong.
    if hasattr(kind, "code") and kind is not errors.IncompleteBody
}


def error_of(answer: Answer) -> WeightdError:
    """The error that an answer of 400 or more tells of."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        shown = answer.body[:200].decode("utf-8", "replace").strip()
        return Refused("http", f"The daemon answered {answer.status}: {shown or 'nothing more'}")
    return error_from(document, retry_after(answer))


def error_from(document: Mapping[str, Any], after: int | None = None) -> WeightdError:
    """The error of a problem document; ``after`` is what its answer's Retry-After said."""
    code, words = str(document.get("code", "unknown")), str(document.get("detail", document))
    kind = _CLASSES.get(code)
    if code == errors.IncompleteBody.code and "received" in document:
        kind = errors.IncompleteBody
    error = None if kind is None else _rebuilt(kind, document, words, after)
    if error is not None:
        return error
    passes = document.get("retryable") is True
    return Refused(code, words, dict(document), code=code, retryable=passes)


def retry_after(answer: Answer) -> int | None:
    """How many seconds to wait before asking again, None when the answer does not say."""
    text = answer.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _rebuilt(
    kind: type[WeightdError], document: Mapping[str, Any], words: str, after: int | None
) -> WeightdError | None:
    """The error with its figures, None when the document has not all of them."""
    told = {one.name: document[one.name] for one in fields(kind) if one.name in document}
    if "holders" in told:
        told["holders"] = tuple(_holder(one) for one in told["holders"])
    if issubclass(kind, errors.Blocked):
        # The rest of the sentence is figures, which are told again as such.
        told["hint"] = words.partition(" arriving. ")[2] or None
    if any(one.name == "retry_after" for one in fields(kind)):
        told["retry_after"] = after
    try:
        return kind(**told)
    except TypeError:
        return None


def _holder(told: Mapping[str, Any]) -> HolderFigures:
    return HolderFigures(
        holder=told["holder"],
        key=told["key"],
        bytes=told["bytes"],
        since=epoch_or_none(told["since"]),
        until=epoch_or_none(told["until"]),
    )
