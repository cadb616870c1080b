"""The exposition: every series there from the start, names right, labels bounded."""

from __future__ import annotations

import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.origin import http_origin
from tests.api.serving import BUDGET, Served
from weightd.api.problems import TABLE
from weightd.origins.contract import ORIGIN_KINDS

SERIES = [
    'lookups_total{result="hit"}',
    'lookups_total{result="miss"}',
    'lookup_bytes_total{result="hit"}',
    'lookup_bytes_total{result="miss"}',
    "hit_ratio",
    'acquire_seconds_count{result="hit"}',
    'evictions_total{reason="admission"}',
    'evictions_total{reason="budget"}',
    'evictions_total{reason="disk"}',
    'evictions_total{reason="request"}',
    'evictions_total{reason="damage"}',
    'evicted_bytes_total{reason="admission"}',
    "capacity_bytes",
    "used_bytes",
    "resident_bytes",
    "retired_bytes",
    "pinned_bytes",
    "evictable_bytes",
    "reserved_bytes",
    "doomed_bytes",
    "overhead_bytes",
    "filesystem_free_bytes",
    "others_bytes",
    "models",
    "pins",
    "holds",
    "oldest_pin_age_seconds",
    "oldest_idle_pin_age_seconds",
    "pins_known",
    "uses",
    "filesystem_total_bytes",
    "min_free_bytes",
    "over_budget_bytes",
    "free_bytes",
    "written_bytes",
    "retired_models",
    "arrivals",
    "waiting",
    "ready",
    "start_time_seconds",
    "in_use_detection",
    "foreign_names",
    *(f'problems_total{{code="{error.code}"}}' for error in TABLE),
    'admission_rejections_total{code="too-large"}',
    'admission_rejections_total{code="blocked"}',
    'admission_rejections_total{code="disk-full"}',
    "admission_wait_seconds_count",
    'puts_total{result="created"}',
    "put_bytes_total",
    "put_seconds_count",
    "refetched_bytes_total",
    "damaged_models_total",
    "expired_pins_total",
    'acquire_seconds_count{result="fetched"}',
    *(
        f'fetches_total{{origin="{origin}",result="{result}"}}'
        for origin in ORIGIN_KINDS
        for result in ("fetched", "same", "failed", "cancelled")
    ),
    *(f'fetch_bytes_total{{origin="{origin}"}}' for origin in ORIGIN_KINDS),
    "fetch_seconds_count",
    'fetch_seconds_bucket{le="36000.0"}',
    "fetches_in_flight",
    "fetch_joined_total",
    "parked_bytes",
    "partials",
    'request_seconds_count{method="POST",route="/v1/fetch",status="202"}',
    'request_seconds_count{method="GET",route="/v1/models/{key}",status="200"}',
    'request_seconds_count{method="PUT",route="/v1/pins/{holder}/{key}",status="201"}',
]


async def scrape(served: Served) -> str:
    answer = await served.client.get("/metrics")
    assert answer.status_code == 200
    return answer.text


def value(text: str, series: str) -> float:
    (found,) = re.findall(rf"^weightd_{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found)


async def test_every_series_is_there_from_the_start(served: Served) -> None:
    text = await scrape(served)
    for series in SERIES:
        assert value(text, series) >= 0
    assert value(text, "capacity_bytes") == BUDGET
    assert re.search(r'^weightd_build_info\{.*version="', text, re.MULTILINE)


async def test_figures_move(served: Served) -> None:
    await served.put("org/a", 10_000)
    await served.client.get("/v1/models/org/a")
    await served.client.get("/v1/models/absent")
    await served.client.put("/v1/pins/h/org/a")
    await served.put("b", BUDGET + 1)
    text = await scrape(served)
    assert value(text, 'lookups_total{result="hit"}') == 2
    assert value(text, 'lookup_bytes_total{result="hit"}') == 20_000
    assert value(text, 'lookups_total{result="miss"}') == 1
    assert value(text, "hit_ratio") == pytest.approx(2 / 3)
    assert value(text, "pins") == 1
    assert value(text, "oldest_pin_age_seconds") >= 0
    assert value(text, 'puts_total{result="created"}') == 1
    assert value(text, "put_bytes_total") == 10_000
    assert value(text, 'admission_rejections_total{code="too-large"}') == 1
    lookups = 'request_seconds_count{method="GET",route="/v1/models/{key}",status="%d"}'
    assert value(text, lookups % 200) == 1
    assert value(text, lookups % 404) == 1


async def test_figures_of_fetches_move(served: Served) -> None:
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(10_000))
        asked = {"key": "m", "source": source}
        for more in ({}, {"revalidate": True}, {}):
            answer = await served.client.post("/v1/fetch?wait=30", json=asked | more)
            assert answer.status_code == 200
        asked = {"key": "n", "source": f"{origin.url}/absent.bin"}
        await served.client.post("/v1/fetch?wait=30", json=asked)
    text = await scrape(served)
    for result, count in (("fetched", 1), ("same", 1), ("failed", 1), ("cancelled", 0)):
        assert value(text, f'fetches_total{{origin="http",result="{result}"}}') == count, result
    assert value(text, 'fetch_bytes_total{origin="http"}') == 10_000
    assert value(text, "fetch_seconds_count") == 2
    assert value(text, "fetches_in_flight") == 0
    assert value(text, 'lookups_total{result="hit"}') == 1
    assert value(text, 'acquire_seconds_count{result="fetched"}') == 2


async def test_labels_do_not_grow_with_what_clients_send(served: Served) -> None:
    for number in range(5):
        await served.put(f"model-{number}", 10)
        await served.client.put(f"/v1/pins/holder-{number}/model-{number}")
        await served.client.get(f"/nowhere/{number}")
        await served.client.request("PROPFIND", f"/nowhere/{number}")
    text = await scrape(served)
    assert not re.search(r"model-\d|holder-\d|nowhere|PROPFIND", text)
    assert value(text, 'problems_total{code="not-found"}') >= 5
    unknown = 'request_seconds_count{method="unknown",route="unknown",status="404"}'
    assert value(text, unknown) == 5


async def test_histograms_are_cumulative_and_whole(served: Served) -> None:
    await served.put("m", 10)
    for family in text_string_to_metric_families(await scrape(served)):
        assert family.name.startswith("weightd_")
        assert family.documentation
        if family.type != "histogram":
            continue
        buckets: dict[frozenset[tuple[str, str]], list[float]] = {}
        counts: dict[frozenset[tuple[str, str]], float] = {}
        for sample in family.samples:
            labels = frozenset((k, v) for k, v in sample.labels.items() if k != "le")
            if sample.name.endswith("_bucket"):
                buckets.setdefault(labels, []).append(sample.value)
            elif sample.name.endswith("_count"):
                counts[labels] = sample.value
        for labels, values in buckets.items():
            assert values == sorted(values)
            assert values[-1] == counts[labels]


async def test_openmetrics_is_answered_when_asked_for(served: Served) -> None:
    answer = await served.client.get(
        "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.needs("promtool")
async def test_promtool_finds_nothing_to_say(served: Served) -> None:
    text = await scrape(served)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


async def test_only_what_published_counts_as_a_put_that_took_time(served: Served) -> None:
    for _ in range(2):
        assert (await served.put("m", 10)).is_success
    text = await scrape(served)
    assert value(text, 'puts_total{result="same"}') == 1
    assert value(text, "put_seconds_count") == 1
