"""Pins over a real socket."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.api.serving import Served, problem
from weightd.wire.answers import PinList, PinnedRecord


async def test_a_first_pin_is_201_and_a_renewal_200(served: Served) -> None:
    await served.put("m", 10)
    first = await served.client.put("/v1/pins/h/m")
    again = await served.client.put("/v1/pins/h/m")
    assert (first.status_code, again.status_code) == (201, 200)
    PinnedRecord.model_validate(first.json())
    assert first.json()["pins"] == again.json()["pins"] == 1
    assert first.json()["since"] == again.json()["since"]
    assert first.json()["until"] is None


async def test_ttl_makes_a_lease_and_forever_does_not(served: Served) -> None:
    await served.put("m", 10)
    lease = (await served.client.put("/v1/pins/h/m?ttl=90.5")).json()
    length = datetime.fromisoformat(lease["until"]) - datetime.fromisoformat(lease["since"])
    assert abs(length.total_seconds() - 90.5) < 0.01
    forever = (await served.client.put("/v1/pins/h/m?ttl=forever")).json()
    assert forever["until"] is None
    (pin,) = (await served.client.get("/v1/pins")).json()["pins"]
    assert (pin["forever"], pin["ttl"]) == (True, None)


async def test_the_list_says_who_what_and_since_when(served: Served) -> None:
    digest = (await served.put("org/m@v1", 10)).json()["digest"]
    await served.client.put("/v1/pins/pod-1:2@node/org/m@v1?ttl=60")
    listed = (await served.client.get("/v1/pins")).json()
    PinList.model_validate(listed)
    (pin,) = listed["pins"]
    assert pin["kind"] == "pin"
    assert pin["holder"] == "pod-1:2@node"
    assert (pin["key"], pin["generation"], pin["current"]) == ("org/m@v1", digest, True)
    assert pin["ttl"] == 60
    assert pin["until"] > pin["since"]


async def test_unpin(served: Served) -> None:
    await served.put("m", 10)
    await served.client.put("/v1/pins/h/m")
    assert (await served.client.delete("/v1/pins/h/m")).status_code == 204
    again = await served.client.delete("/v1/pins/h/m")
    assert again.status_code == 404
    assert problem(again)["code"] == "not-pinned"
    assert (await served.client.get("/v1/pins")).json()["pins"] == []


async def test_what_weightd_pins_itself_is_no_callers_to_pin_or_let_go(served: Served) -> None:
    await served.put("m", 10)
    for method in ("PUT", "DELETE"):
        for holder in ("weightd:preload", "weightd%3Apreload", "weightd:"):
            answer = await served.client.request(method, f"/v1/pins/{holder}/m")
            document = problem(answer)
            assert (answer.status_code, document["code"]) == (400, "invalid-request")
            assert document["what"] == "holder"
            assert "begins with weightd:" in document["detail"]
    for holder in ("weightd", "weightd-1:preload", "my.weightd:1"):
        assert (await served.client.put(f"/v1/pins/{holder}/m")).status_code == 201


async def test_text_plain_answers_the_path_to_map(served: Served) -> None:
    record = (await served.put("m", 10)).json()
    answer = await served.client.put("/v1/pins/h/m", headers={"Accept": "text/plain"})
    assert (answer.status_code, answer.text) == (201, record["path"])


async def test_a_pin_of_what_is_absent_is_a_miss(served: Served) -> None:
    answer = await served.client.put("/v1/pins/h/absent")
    assert answer.status_code == 404
    assert problem(answer)["code"] == "not-resident"
    assert (await served.client.get("/v1/status")).json()["misses"] == 1


async def test_exactly_one_generation_can_be_asked_for(served: Served) -> None:
    digest = (await served.put("m", 10)).json()["generation"]
    assert (await served.client.put(f"/v1/pins/h/m?generation={digest}")).status_code == 201
    await served.client.delete("/v1/pins/h/m")
    await served.client.put("/v1/models/m", content=b"replaced")
    gone = await served.client.put(f"/v1/pins/h/m?generation={digest}")
    assert gone.status_code == 404
    assert problem(gone) | {"code": "generation-gone", "generation": digest} == problem(gone)


async def test_a_pinned_model_is_not_deleted_and_its_holders_are_named(served: Served) -> None:
    await served.put("m", 10)
    for holder in ("a", "b"):
        await served.client.put(f"/v1/pins/{holder}/m")
    answer = await served.client.delete("/v1/models/m")
    assert answer.status_code == 409
    document = problem(answer)
    assert document["code"] == "pinned"
    assert {one["holder"] for one in document["holders"]} == {"a", "b"}


async def test_a_replaced_generation_stays_until_its_pin_goes(served: Served) -> None:
    old = (await served.put("m", 1000)).json()
    await served.client.put("/v1/pins/h/m")
    new = (await served.client.put("/v1/models/m", content=b"new")).json()
    assert new["path"] != old["path"]
    assert Path(old["file"]).exists()
    (pin,) = (await served.client.get("/v1/pins")).json()["pins"]
    assert (pin["generation"], pin["current"]) == (old["digest"], False)
    await served.client.delete("/v1/pins/h/m")
    assert (await served.client.get("/v1/pins")).json()["pins"] == []
    assert not Path(old["file"]).exists()


async def test_accepting_a_loss_that_was_none_changes_nothing(served: Served) -> None:
    assert (await served.client.post("/v1/pins/accept-loss")).status_code == 204
