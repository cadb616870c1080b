"""Every alert, fired and cleared by what happens to a real daemon that a real Prometheus scrapes.

Times are short (`tests.prometheus.quick`): a day is 24 s.  `make test-alerts` runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.alerts import scenes_daemon, scenes_room, scenes_trust
from tests.alerts.stage import Stage
from tests.prometheus.rules import alerts
from tests.prometheus.server import Prometheus, running_prometheus

SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "WeightdAbsent": scenes_daemon.absent,
    "WeightdDown": scenes_daemon.down,
    "WeightdNotReady": scenes_daemon.not_ready,
    "WeightdRestarting": scenes_daemon.restarting,
    "WeightdSlow": scenes_daemon.slow,
    "WeightdTooMany": scenes_daemon.too_many,
    "WeightdBlocked": scenes_room.blocked,
    "WeightdTooLarge": scenes_room.too_large,
    "WeightdDiskFull": scenes_room.disk_full,
    "WeightdDiskShared": scenes_room.disk_shared,
    "WeightdDiskSqueezed": scenes_room.disk_squeezed,
    "WeightdOverBudget": scenes_room.over_budget,
    "WeightdIdlePin": scenes_room.idle_pin,
    "WeightdDoomedStays": scenes_room.doomed_stays,
    "WeightdHitRatioCollapsed": scenes_trust.hit_ratio_collapsed,
    "WeightdRegretRising": scenes_trust.regret_rising,
    "WeightdFetchesFailing": scenes_trust.fetches_failing,
    "WeightdDamage": scenes_trust.damage,
    "WeightdErrors": scenes_trust.errors,
    "WeightdPinsUnknown": scenes_trust.pins_unknown,
    "WeightdUseUnseen": scenes_trust.use_unseen,
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running_prometheus(tmp_path_factory.mktemp("alerts") / "prometheus", "1s") as server:
        yield server


def test_every_alert_has_its_scene() -> None:
    assert set(SCENES) == set(alerts())


@pytest.mark.needs("prometheus", "root", "mount", "strace", "chattr")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("alert", SCENES)
def test_an_alert_fires_and_clears(alert: str, prometheus: Prometheus, tmp_path: Path) -> None:
    stage = Stage(alert, prometheus, tmp_path, waits="for" in alerts()[alert])
    SCENES[alert](stage)
    told = ", ".join(one for one in stage.told if not one.startswith("scraped"))
    sys.stdout.write(f"{alert:26} {told}\n")
    assert prometheus.problems() == []
