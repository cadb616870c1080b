"""The description is complete: every route, parameter, shape, example and error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest

from tests.api.serving import serving
from weightd import errors
from weightd.api import faults
from weightd.api.app import ROUTES
from weightd.api.examples import EXAMPLES
from weightd.api.problems import TABLE, document, kind_of, problem
from weightd.cache import Options
from weightd.errors import WeightdError
from weightd.store import Store

REFINED = (faults.InvalidRequests, faults.AskForPassword)


def classes() -> list[type[WeightdError]]:
    return [
        one
        for module in (errors, faults)
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, WeightdError)
        and one.__module__.startswith(module.__name__)
        and one not in (WeightdError, *REFINED)
    ]


@pytest.mark.parametrize("error", classes())
def test_every_error_has_a_status_an_example_and_a_shape(error: type[WeightdError]) -> None:
    assert error in TABLE
    example = EXAMPLES[error]
    answered = json.loads(bytes(problem(example).body))
    assert answered == json.loads(json.dumps(document(example), default=list))
    kind_of(error).shape.model_validate(answered)
    known = set(kind_of(error).shape.model_fields)
    if error is not errors.IncompleteBody:
        assert set(answered) == known, "the shape tells of every figure"
    assert get_args(kind_of(error).shape.model_fields["code"].annotation) == (error.code,)


def test_a_refinement_is_answered_as_what_it_refines() -> None:
    assert [kind_of(one).status for one in REFINED] == [400, 401]

    class Unlisted(WeightdError):
        code = "unlisted"

    assert kind_of(Unlisted).status == 500


@pytest.fixture(scope="module")
async def description(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with serving(tmp_path_factory.mktemp("described") / "cache") as served:
        answer = await served.client.get("/openapi.json")
        assert answer.status_code == 200
        return answer.json()


async def test_every_route_is_described(description: Any) -> None:
    for route in ROUTES:
        operation = description["paths"][route.path][route.method.lower()]
        assert operation["summary"]
        for status in route.answers:
            assert operation["responses"][str(status)]["description"]
        for error in route.all_errors:
            content = operation["responses"][str(kind_of(error).status)]["content"]
            assert error.code in content["application/problem+json"]["examples"]
        for parameter in operation["parameters"]:
            assert parameter["description"]
            assert parameter["schema"]
        for name in route.query.model_fields:
            assert name in [one["name"] for one in operation["parameters"]]


async def test_operations_have_names_of_their_own(description: Any) -> None:
    names = [one["operationId"] for path in description["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))


async def test_the_lines_of_streams_have_shapes(description: Any) -> None:
    lines = [answer.line for route in ROUTES for answer in route.answers.values() if answer.line]
    assert len(lines) == 4
    for line in lines:
        assert line.__name__ in description["components"]["schemas"]
        assert f"A `{line.__name__}` a line." in json.dumps(description["paths"])


async def test_nothing_of_the_framework_shows(description: Any) -> None:
    text = json.dumps(description)
    assert "HTTPValidationError" not in text
    assert "Validation Error" not in text


async def test_every_reference_leads_somewhere(description: Any) -> None:
    schemas = description["components"]["schemas"]
    for part in json.dumps(description).split('"$ref": "')[1:]:
        reference = part.partition('"')[0]
        assert reference.removeprefix("#/components/schemas/") in schemas


async def test_examples_hold_against_their_schemas(description: Any) -> None:
    def check(schema: Any, example: Any) -> None:
        whole = {"components": description["components"], **schema}
        jsonschema_rs.validate(whole, example)

    for name, schema in description["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            check({"$ref": f"#/components/schemas/{name}"}, example)
    for path in description["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                for media in response.get("content", {}).values():
                    for example in media.get("examples", {}).values():
                        check(media["schema"], example["value"])


async def test_a_disk_that_fails_is_declared_where_files_are_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests.api.serving.declared` holds every refusal against the description."""

    def fails(*_: object) -> None:
        raise errors.IoError("lstat of m", "Input/output error")

    async with serving(root, options=Options(check_age=0.0)) as served:
        await served.put("m", 10)
        monkeypatch.setattr(Store, "check", fails)
        for method, target in (
            ("GET", "/v1/models/m"),
            ("HEAD", "/v1/models/m"),
            ("PUT", "/v1/pins/h/m"),
        ):
            answer = await served.client.request(method, target)
            assert answer.status_code == 500


async def test_what_ends_keeps_working_while_draining(root: Path) -> None:
    async with serving(root) as served:
        await served.put("m", 10)
        await served.client.put("/v1/pins/h/m")
        served.cache.drain()
        for method, target in (
            ("DELETE", "/v1/pins/h/m"),
            ("POST", "/v1/pins/accept-loss"),
            ("DELETE", "/v1/models/m"),
        ):
            assert (await served.client.request(method, target)).status_code == 204
            operation = next(
                one for one in ROUTES if one.method == method and one.pattern.fullmatch(target)
            )
            assert errors.Draining not in operation.all_errors
