"""Settings: every option once; flags, environment, file and documentation come from it."""

from weightd.settings.loading import (
    Budget,
    Loaded,
    SettingsError,
    describe,
    load,
    resolve_budget,
)
from weightd.settings.options import Option, Settings, options
from weightd.settings.values import Listen, Share

__all__ = [
    "Budget",
    "Listen",
    "Loaded",
    "Option",
    "Settings",
    "SettingsError",
    "Share",
    "describe",
    "load",
    "options",
    "resolve_budget",
]
