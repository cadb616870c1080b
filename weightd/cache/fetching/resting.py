"""After an origin failed, the same wish rests for a while, longer each time: it is not hammered.

Meanwhile the failure is the answer.  Other sources, another credential or
another content are another wish, and are asked at once.
"""

from __future__ import annotations

import copy
import math
from typing import Final

from weightd.cache.fetching.job import Job, fingerprint_of
from weightd.cache.fetching.terms import FetchTerms
from weightd.errors import DigestMismatch, OriginFailed, OriginTimeout, WeightdError

FIRST_SECONDS: Final = 2.0
MAX_SECONDS: Final = 300.0


def begin(job: Job, error: WeightdError, now: float) -> None:
    """Let the origin be after what it did, at least as long as it asked for."""
    if not isinstance(error, OriginFailed | OriginTimeout | DigestMismatch):
        return
    job.attempts += 1
    pause = min(MAX_SECONDS, FIRST_SECONDS * 2 ** (job.attempts - 1))
    pause = max(pause, error.retry_after or 0.0)
    job.retry_at = now + pause
    error.retry_after = math.ceil(pause) if error.retryable else None


def must_be_over(previous: Job, terms: FetchTerms, now: float) -> None:
    """Raise what the last job of the key failed with, while the same is not to be asked again."""
    if previous.error is None or not is_same_wish(previous, terms):
        return
    left = (previous.retry_at or 0.0) - now
    if left <= 0:
        return
    error = copy.copy(previous.error)
    if isinstance(error, OriginFailed | OriginTimeout | DigestMismatch) and error.retryable:
        error.retry_after = math.ceil(left)
    raise error


def is_same_wish(job: Job, terms: FetchTerms) -> bool:
    """Whether the same is asked of the same, by the same name."""
    wished = fingerprint_of(terms.sources), terms.credential, terms.digest
    return (job.fingerprint, job.credential, job.digest) == wished
