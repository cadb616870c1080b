"""The kinds of panel that the dashboard is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import DataSourceRef, DataTransformerConfig, Threshold
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
NODES: Final = 'job=~"$job", instance=~"$node"'
"""Selects what the variables of the dashboard choose."""

LETTERS: Final = "ABCDEFGH"
"""Names of a panel's queries."""

Colour: TypeAlias = tuple[float | None, str]
Asked: TypeAlias = Sequence[tuple[str, str]]
"""Queries, and the legend of each."""

GREEN: Final[Colour] = (None, "green")
SOME_IS_BAD: Final = (GREEN, (1.0, "red"))
NONE_IS_BAD: Final[Sequence[Colour]] = ((None, "red"), (1.0, "green"))


def query(expression: str, legend: str = "", *, now: bool = False) -> prometheus.Dataquery:
    """One query; ``now`` asks for one instant, as a table row."""
    asked = prometheus.Dataquery().expr(expression).legend_format(legend or "__auto")
    return asked.instant().format(PromQueryFormat.TABLE) if now else asked.range()


def steps(colours: Sequence[Colour]) -> board.ThresholdsConfig:
    return board.ThresholdsConfig().steps([Threshold(value, colour) for value, colour in colours])


def number(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    colours: Sequence[Colour] = (GREEN,),
) -> stat.Panel:
    """One figure of this moment, in a colour."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .thresholds(steps(colours))
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .reduce_options(options.ReduceDataOptions().calcs(["lastNotNull"]))
        .height(4)
        .span(3)
        .with_target(query(expression).ref_id("A"))
    )


def lines(
    title: str,
    description: str,
    asked: Asked,
    *,
    unit: str,
    stacked: bool = False,
    most: float | None = None,
    colours: Sequence[Colour] = (),
    span: int = 8,
) -> timeseries.Panel:
    """Figures over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(8)
        .span(span)
        .line_width(1)
        .fill_opacity(30 if stacked else 5)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .legend(
            options.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    for letter, (expression, legend) in zip(LETTERS, asked, strict=False):
        panel = panel.with_target(query(expression, legend).ref_id(letter))
    if stacked:
        panel = panel.stacking(options.StackingConfig().mode(common.StackingMode.NORMAL))
    if most is not None:
        panel = panel.max(most)
    if colours:
        panel = panel.thresholds(steps(colours)).thresholds_style(
            options.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.DASHED)
        )
    return panel


def rows(title: str, description: str, asked: Asked, *, hidden: Sequence[str]) -> table.Panel:
    """A table of this moment, without the columns ``hidden``."""
    panel = table.Panel().title(title).description(description).datasource(SOURCE)
    names = {"Value": "value"}
    for letter, (expression, legend) in zip(LETTERS, asked, strict=False):
        panel = panel.with_target(query(expression, now=True).ref_id(letter))
        names[f"Value #{letter}"] = legend
    organize = {"excludeByName": dict.fromkeys(hidden, True), "renameByName": names}
    return (
        panel.height(8)
        .with_transformation(DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(DataTransformerConfig(id_val="organize", options=organize))
    )
