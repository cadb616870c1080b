"""Settings: every option once; flags, environment, file and documentation come from it."""

from weightd.settings.loading import (
    Budget,
    Loaded,
    SettingsError,
    describe,
    load,
    load_fit,
    resolve_budget,
)
from weightd.settings.options import Option, Settings, options
from weightd.settings.places import on_system_disk
from weightd.settings.preloads import Preload
from weightd.settings.room import shortage, shortage_at
from weightd.settings.values import Listen, Share

__all__ = [
    "Budget",
    "Listen",
    "Loaded",
    "Option",
    "Preload",
    "Settings",
    "SettingsError",
    "Share",
    "describe",
    "load",
    "load_fit",
    "on_system_disk",
    "options",
    "resolve_budget",
    "shortage",
    "shortage_at",
]
