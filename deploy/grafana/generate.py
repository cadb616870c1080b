"""Makes the dashboard: ``python -m deploy.grafana.generate > deploy/grafana/weightd.json``.

A row answers one question; each panel says in its description what its figures mean.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import text
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.dashboard import Panel as PanelModel

from deploy.grafana.panels import (
    GREEN,
    NODES,
    NONE_IS_BAD,
    SOME_IS_BAD,
    SOURCE,
    Asked,
    lines,
    number,
    rows,
)

TO_DO: Final = (
    (
        "blocked, and *kept* fills the budget",
        "replicas keep what is here",
        "`weightd pins`; drain one, or place the next elsewhere",
    ),
    (
        "blocked, and an old idle pin",
        "a holder died and did not unpin",
        "`weightd unpin KEY --holder HOLDER`",
    ),
    ("too large", "it never fits here", "raise `capacity`, or place it elsewhere"),
    (
        "cold, and regret is high",
        "the budget is too small",
        "raise `capacity`, or route by what is here",
    ),
    (
        "cold, and regret is low",
        "what is asked for is new each time",
        "route by what is here; a larger budget is of no use",
    ),
    ("cold, and fetches fail", "an origin refuses", "the `problem` of each in `/v1/fetches`"),
    (
        "*others* grow",
        "somebody else fills the disk",
        "give weightd its own, or lower `capacity`",
    ),
)
"""What is seen, what it means, and what to do."""


def to_do() -> text.Panel:
    table_of = [("you see", "it means", "do"), ("---", "---", "---"), *TO_DO]
    said = "\n".join(f"| {' | '.join(line)} |" for line in table_of)
    more = "Each alert is explained in the chapter *A runbook by symptom* of weightd's README."
    return text.Panel().title("What would I do?").content(f"{said}\n\n{more}").height(8).span(12)


def gauges(names: str, how: str = "sum") -> list[tuple[str, str]]:
    """The gauges ``weightd_…_bytes`` of these names, over the nodes."""
    return [(f"{how}(weightd_{name}_bytes{{{NODES}}})", name) for name in names.split()]


def health(dashboard: board.Dashboard) -> board.Dashboard:
    firing = 'ALERTS{alertname=~"Weightd.*", alertstate="firing"}'
    lost = f"sum(increase(weightd_damaged_models_total{{{NODES}}}[$__range]))"
    panels = [
        number("Answer", "Nodes whose last scrape succeeded.", f"sum(up{{{NODES}}})"),
        number(
            "Silent",
            "Nodes whose last scrape failed (WeightdDown).",
            f"count(up{{{NODES}}}) - sum(up{{{NODES}}})",
            colours=SOME_IS_BAD,
        ),
        number(
            "Alerts",
            "Alerts of weightd's that fire, on all nodes.",
            f"count({firing}) or vector(0)",
            colours=SOME_IS_BAD,
        ),
        number(
            "Blocked now",
            "Arrivals that wait for room (WeightdBlocked after five minutes).",
            f"sum(weightd_waiting{{{NODES}}})",
            colours=SOME_IS_BAD,
        ),
        number(
            "Ready",
            "1 when all are ready; 0 while any starts or drains (WeightdNotReady).",
            f"min(weightd_ready{{{NODES}}})",
            colours=NONE_IS_BAD,
        ),
        number(
            "Pins known",
            "0 when any node lost the record of who pins what (WeightdPinsUnknown).",
            f"min(weightd_pins_known{{{NODES}}})",
            colours=NONE_IS_BAD,
        ),
        number(
            "Damaged",
            "Damaged models in the time shown (WeightdDamage).",
            lost,
            colours=SOME_IS_BAD,
        ),
        number(
            "Over budget",
            "Bytes that pins and use keep beyond the budget (WeightdOverBudget).",
            f"sum(weightd_over_budget_bytes{{{NODES}}})",
            unit="bytes",
            colours=SOME_IS_BAD,
        ),
        rows(
            "Alerts that fire",
            "Look each up in the runbook of weightd's README by its name.",
            [(firing, "firing")],
            hidden=("Time", "__name__", "alertstate", "Value", "Value #A"),
        ).span(8),
        lines(
            "Refusals and errors",
            "Answers that are problems, by code, misses left out. blocked, too-large and disk-full "
            "say that a model could not be had; io-error, state-unwritable, unhealthy and internal "
            "that something is broken.",
            rate_by("code", "problems", ', code!~"not-resident|not-pinned|not-found"'),
            unit="reqps",
        ),
        lines(
            "How long lookups take",
            "Of GET /v1/models/KEY, over the nodes. WeightdSlow goes by the dashed line.",
            [
                (quantile("request", share, 'route="/v1/models/{key}", method="GET"'), f"p{share}")
                for share in (50, 99)
            ],
            unit="s",
            colours=(GREEN, (0.5, "red")),
        ),
    ]
    return with_row(dashboard, "Is it healthy?", panels)


def rate_by(label: str, metric: str, more: str = "") -> Asked:
    """How fast a counter grows over the nodes, for each value of a label."""
    counted = f"rate(weightd_{metric}_total{{{NODES}{more}}}[$__rate_interval])"
    return [(f"sum by ({label}) ({counted})", f"{{{{{label}}}}}")]


def quantile(what: str, percent: int, labels: str = "", by: str = "le") -> str:
    chosen = f"{NODES}, {labels}" if labels else NODES
    rate = f"rate(weightd_{what}_seconds_bucket{{{chosen}}}[$__rate_interval])"
    return f"histogram_quantile({percent / 100}, sum by ({by}) ({rate}))"


def coldness(dashboard: board.Dashboard) -> board.Dashboard:
    panels = [
        lines(
            "Hit ratio",
            "Of the lookups of the last hour, how many found the model here, and of the bytes how "
            "many; the week's own ratio is what WeightdHitRatioCollapsed compares with.",
            [
                (f"avg(instance:weightd_hit_ratio:1h{{{NODES}}})", "last hour"),
                (f"avg(instance:weightd_byte_hit_ratio:1h{{{NODES}}})", "last hour, by bytes"),
                (f"avg(instance:weightd_hit_ratio:7d{{{NODES}}})", "last week"),
            ],
            unit="percentunit",
            most=1,
        ),
        lines(
            "Lookups",
            "Wishes for a model, hits and misses.",
            rate_by("result", "lookups"),
            unit="reqps",
            stacked=True,
        ),
        lines(
            "From the wish to a path",
            "How long a replica waits: for a hit, and for one that has to be fetched.",
            [
                (quantile("acquire", share, by="result, le"), f"{{{{result}}}} p{share}")
                for share in (50, 99)
            ],
            unit="s",
        ),
        lines(
            "What origins send",
            "Bytes that arrive, by kind of origin.",
            rate_by("origin", "fetch_bytes"),
            unit="Bps",
            stacked=True,
        ),
        lines(
            "How fetches end",
            "In each quarter of an hour (WeightdFetchesFailing).",
            [
                (
                    f"sum by (result) (increase(weightd_fetches_total{{{NODES}}}[15m]))",
                    "{{result}}",
                )
            ],
            unit="short",
        ),
        lines(
            "Under way",
            "Fetches, all arrivals with room, and those that wait for room.",
            [
                (f"sum(weightd_fetches_in_flight{{{NODES}}})", "fetches"),
                (f"sum(weightd_arrivals{{{NODES}}})", "arrivals"),
                (f"sum(weightd_waiting{{{NODES}}})", "waiting"),
            ],
            unit="short",
        ),
    ]
    return with_row(dashboard, "Why is it cold?", panels)


def keeping(dashboard: board.Dashboard) -> board.Dashboard:
    panels = [
        lines(
            "The budget, by occupant",
            "pinned may not go; evictable may; reserved is promised to arrivals; doomed was "
            "evicted and is not back yet.",
            gauges("pinned evictable reserved doomed"),
            unit="bytes",
            stacked=True,
        ),
        lines(
            "Kept, of each node's budget",
            "At 1 the next arrival is blocked.",
            [(f"instance:weightd_pinned:share{{{NODES}}}", "{{instance}}")],
            unit="percentunit",
            most=1,
            colours=(GREEN, (0.95, "red")),
        ),
        lines(
            "Who keeps",
            "Pins by holders, holds by the kernel, and models that some process has open without "
            "either.",
            [(f"sum(weightd_{kind}{{{NODES}}})", kind) for kind in ("pins", "holds", "uses")],
            unit="short",
        ),
        lines(
            "The oldest pin, and the oldest that is idle",
            "An idle one is neither a lease nor forever, and no process holds or has open what it "
            "keeps (WeightdIdlePin after a day).",
            [
                (f"max(weightd_oldest_pin_age_seconds{{{NODES}}})", "oldest"),
                (f"max(weightd_oldest_idle_pin_age_seconds{{{NODES}}})", "oldest idle"),
            ],
            unit="s",
            colours=(GREEN, (86400.0, "red")),
        ),
        lines(
            "The disk",
            "used is weightd's, others is everybody else's, filesystem_free is left; min_free of "
            "it stays (WeightdDiskShared).",
            gauges("used others filesystem_free min_free"),
            unit="bytes",
        ),
        lines(
            "Models",
            "Models that are here; retired ones, which a pin keeps; unfinished fetches.",
            [
                (f"sum(weightd_{name}{{{NODES}}})", name)
                for name in ("models", "retired_models", "partials")
            ],
            unit="short",
        ),
    ]
    return with_row(dashboard, "Who keeps what?", panels)


def budget(dashboard: board.Dashboard) -> board.Dashboard:
    panels = [
        lines(
            "What goes, and why",
            "admission makes room for another model; disk for the files of others; budget since it "
            "was lowered; request by hand; damage: its files vanished or changed.",
            rate_by("reason", "evicted_bytes"),
            unit="Bps",
            stacked=True,
        ),
        lines(
            "Regret",
            "Of the bytes that went to make room, how many were wanted again within a day. Little: "
            "the budget is large enough. Much: it is too small (WeightdRegretRising).",
            [
                (f"avg(instance:weightd_regret:ratio1d{{{NODES}}})", "last day"),
                (f"avg(instance:weightd_regret:ratio7d{{{NODES}}})", "last week"),
            ],
            unit="percentunit",
            colours=(GREEN, (0.2, "red")),
        ),
        lines(
            "Of the budget, what others took",
            "Bytes of the budget that the disk has no room for.",
            [(f"instance:weightd_budget_lost_bytes:now{{{NODES}}}", "{{instance}}")],
            unit="bytes",
        ),
        rows(
            "Node by node",
            "Sort by what hurts: hits of the last hour, regret of the last day, and shares of the "
            "budget.",
            [
                (f"sum by (instance) ({name}{{{NODES}}})", legend)
                for name, legend in (
                    ("instance:weightd_hit_ratio:1h", "hits"),
                    ("instance:weightd_regret:ratio1d", "regret"),
                    ("instance:weightd_used:share", "used"),
                    ("instance:weightd_pinned:share", "kept"),
                    ("instance:weightd_evictable:share", "evictable"),
                    ("instance:weightd_others:share", "others, of the disk"),
                )
            ],
            hidden=("Time",),
        )
        .unit("percentunit")
        .span(12),
        to_do(),
    ]
    return with_row(dashboard, "Is the budget right, and what would I do?", panels)


Panel: TypeAlias = Builder[PanelModel]


def with_row(dashboard: board.Dashboard, title: str, panels: Sequence[Panel]) -> board.Dashboard:
    dashboard = dashboard.with_row(board.Row(title))
    for panel in panels:
        dashboard = dashboard.with_panel(panel)
    return dashboard


def chosen(name: str, label: str, query: str) -> board.QueryVariable:
    """A variable that is a label's values, all of them at first."""
    return (
        board.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def dashboard() -> str:
    """The dashboard, as JSON."""
    made = (
        board.Dashboard("weightd")
        .uid("weightd")
        .description("Model weights on the nodes' own disks: health, hits, who keeps what, budget.")
        .tags(["weightd"])
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .link(
            board.DashboardLink("Alerts")
            .type(DashboardLinkType.LINK)
            .url("/alerting/list?search=Weightd")
            .tooltip("The alerts of weightd's, where Grafana shows them")
        )
        .with_variable(board.DatasourceVariable("datasource").label("Source").type("prometheus"))
        .with_variable(chosen("job", "Job", "label_values(weightd_ready, job)"))
        .with_variable(chosen("node", "Node", 'label_values(weightd_ready{job=~"$job"}, instance)'))
    )
    for row in (health, coldness, keeping, budget):
        made = row(made)
    built = made.build()
    for number, panel in enumerate(built.panels or (), 1):
        panel.id_val = number
    return JSONEncoder(sort_keys=True, indent=2).encode(built) + "\n"


if __name__ == "__main__":
    sys.stdout.write(dashboard())
