"""Whether status, metrics and the list of pins tell the same."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.polling import until_nothing
from tests.system.daemon import Client, Daemon

SAME: Final = {
    "weightd_models": "models",
    "weightd_pins": "pins",
    "weightd_holds": "holds",
    "weightd_capacity_bytes": "capacity_bytes",
    "weightd_used_bytes": "used_bytes",
    "weightd_resident_bytes": "resident_bytes",
    "weightd_retired_bytes": "retired_bytes",
    "weightd_reserved_bytes": "reserved_bytes",
    "weightd_pinned_bytes": "pinned_bytes",
    "weightd_evictable_bytes": "evictable_bytes",
    "weightd_doomed_bytes": "doomed_bytes",
    "weightd_free_bytes": "free_bytes",
    "weightd_written_bytes": "written_bytes",
    "weightd_over_budget_bytes": "over_budget_bytes",
    "weightd_retired_models": "retired_models",
    "weightd_arrivals": "arrivals",
    "weightd_waiting": "waiting",
    "weightd_pins_known": "pins_known",
    "weightd_min_free_bytes": "min_free_bytes",
    "weightd_damaged_models_total": "damaged_models",
    "weightd_expired_pins_total": "expired_pins",
}
"""Each metric and the figure of the status that it publishes."""


def metrics(client: Client) -> dict[str, float]:
    """Every metric without labels."""
    answer = client.call("GET", "/metrics")
    assert answer.status == 200, answer
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
        if not sample.labels
    }


def agree(daemon: Daemon) -> None:
    """Compare the three, once they are of one instant: use comes and goes between two answers."""
    until_nothing(lambda: _differ(daemon.client))


def _differ(client: Client) -> dict[str, Any]:
    status, published = client.status(), metrics(client)
    listed = client.get("/v1/pins")["pins"]
    wrong = {
        name: (published[name], status[figure])
        for name, figure in SAME.items()
        if published[name] != status[figure]
    }
    for kind in ("pin", "hold", "use"):
        count = sum(1 for one in listed if one["kind"] == kind)
        if count != status[f"{kind}s"]:
            wrong[kind] = (count, status[f"{kind}s"])
    return wrong
