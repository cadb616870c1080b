"""A hundred callers want one model at the same time: it is downloaded once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.origins.servers.nginx import Nginx
from tests.polling import until
from tests.system.daemon import running
from tests.system.fetching import LISTING, ask, jobs, publish, sent, shards
from tests.system.metrics import metrics

CALLERS: Final = 100


@pytest.mark.needs("nginx", "openssl")
def test_one_download_and_as_many_equal_answers(root: Path, nginx: Nginx) -> None:
    model = shards("m", 3_000_000, 2_000_000, 1_000_000)
    publish(nginx.root / "m", model)
    source = f"{nginx.url}/m/{LISTING}"
    begin = threading.Barrier(CALLERS)
    with running(root, capacity=100_000_000) as daemon:

        def caller(number: int) -> object:
            begin.wait(30)
            holder = f"replica-{number}"
            answer = ask(daemon.client, "org/m@1", source, holder=holder)
            assert answer.status == 200, answer
            record = answer.json()
            # The others' pins come one after the other.
            assert record.pop("pins") >= 1
            return record

        with ThreadPoolExecutor(CALLERS) as pool:
            with nginx.frozen():
                callers = [pool.submit(caller, number) for number in range(CALLERS)]
                until(lambda: [job["callers"] for job in jobs(daemon.client)] == [CALLERS])
            records = [each.result() for each in callers]
        assert all(record == records[0] for record in records)
        (job,) = jobs(daemon.client)
        assert (job["state"], job["bytes_done"]) == ("done", model.bytes)
        figures = metrics(daemon.client)
        assert figures["weightd_fetch_joined_total"] == CALLERS - 1
        pins = daemon.client.get("/v1/pins")["pins"]
        assert {pin["holder"] for pin in pins} == {f"replica-{n}" for n in range(CALLERS)}
        assert model.is_at(Path(daemon.client.get("/v1/models/org/m@1")["path"]))
        assert daemon.stop() == 0
    answers = nginx.answered()
    assert sorted(one.path for one in answers) == sorted(
        [f"/m/{LISTING}", *(f"/m/{path}" for path, _ in model.files)]
    )
    assert sent(answers) == model.bytes
