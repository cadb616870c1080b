"""The settings in the cache's words."""

from __future__ import annotations

from weightd.cache import Options, Wish
from weightd.origins.contract import Patience, Trust
from weightd.settings import Settings
from weightd.settings.values import read_token


def cache_options(settings: Settings) -> Options:
    """What the cache runs by."""
    return Options(
        transfers=settings.puts_limit,
        policy=settings.policy,
        orphan_grace=settings.orphan_grace,
        fetch_concurrency=settings.fetch_concurrency,
        fetch_bandwidth=settings.fetch_bandwidth,
        partial_ttl=settings.partial_ttl,
        trust=_trust(settings),
        patience=Patience(progress=min(settings.idle_timeout, Patience().progress)),
    )


def wishes(settings: Settings) -> tuple[Wish, ...]:
    """What is to be here, in order."""
    return tuple(
        Wish(one.key, one.sources, one.keep, one.credential, one.digest) for one in settings.preload
    )


def token_of(settings: Settings) -> str | None:
    """What the doors on the network ask for, as its file has it now.  Raises ValueError."""
    return None if settings.token_file is None else read_token(settings.token_file)


def _trust(settings: Settings) -> Trust:
    return Trust(
        allowed=settings.allow_origins or (),
        import_roots=tuple(map(str, settings.import_roots)),
        ca_file=None if settings.ca_file is None else str(settings.ca_file),
        credentials=settings.credentials,
    )
