"""The OpenAPI description, from the table of routes and the wire's shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from weightd import __version__
from weightd.api.examples import EXAMPLES
from weightd.api.problems import TABLE, document, kind_of
from weightd.api.routing import Answer, Door, Errors, Route
from weightd.errors import WeightdError
from weightd.wire.fields import HOLDER_SCHEMA, KEY_SCHEMA
from weightd.wire.problems import MEDIA_TYPE

_REFERENCE: Final = "#/components/schemas/{model}"

_PATH_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "key": {
        "description": (
            "`name` or `name@revision`, a name being 1 to 6 segments joined by `/`; `%2F` is `/`."
        ),
        "schema": KEY_SCHEMA,
    },
    "holder": {
        "description": "Who pins, unique per replica: a pod's UID, or a host and a process.",
        "schema": HOLDER_SCHEMA,
    },
    "fetch": {
        "description": "The `id` of a fetch.",
        "schema": {"type": "string", "minLength": 1, "examples": ["5f0c9a1e7b3d2846"]},
    },
    "upload": {
        "description": "The `id` of an upload.",
        "schema": {
            "type": "string",
            "minLength": 1,
            "examples": ["0f1e2d3c4b5a69788796a5b4c3d2e1f0"],
        },
    },
}

_RESPONSE_HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Location": ("Where the new model, or the fetch, answers.", {"type": "string"}),
    "ETag": ("The file's sha256, in quotes.", {"type": "string"}),
    "Accept-Ranges": ("`bytes`.", {"type": "string"}),
    "Content-Range": ("Which bytes of how many.", {"type": "string"}),
    "Retry-After": ("Seconds after which to try again.", {"type": "string", "pattern": "^[0-9]+$"}),
    "Allow": ("The methods that the route takes.", {"type": "string"}),
}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document.

    FastAPI is imported when somebody asks: that takes a third of a start, and it answers nothing.
    """
    from fastapi import FastAPI
    from fastapi.openapi.utils import get_openapi

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for route in routes:
        app.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            response_class=Response,
            **_options(route),
        )
    description = get_openapi(
        title="weightd",
        version=__version__,
        summary="A node-local cache for model weights, within a byte budget.",
        description=(
            "Sizes are integers in bytes, times are RFC 3339 in UTC. Requests reject unknown "
            "fields; ignore unknown fields of answers. Every error is a problem document. "
            "Every answer has an `X-Request-Id`, which weightd's log names: the request's own, if "
            "that is at most 128 letters, digits and `._:=+/@-`, else one that is made."
        ),
        routes=app.routes,
    )
    for route in routes:
        description["paths"][route.path][route.method.lower()].update(_details(route))
    description["components"] = {
        "schemas": _schemas(routes),
        "securitySchemes": {"token": _TOKEN},
    }
    return description


def _options(route: Route) -> dict[str, Any]:
    """What FastAPI is told of a route, beyond its path and handler."""
    return {
        "status_code": next(iter(route.answers)),
        "response_model": None,
        "summary": route.summary,
        "description": _description(route),
        "operation_id": _operation(route),
    }


_DOORS: Final[dict[Door, str]] = {
    "admin": "the admin socket",
    "replica": "the replica socket",
    "read-only": "the listener on a loopback address",
    "public": "a listener on any other address",
    "network": "the listener of the whole API",
}

_TOKEN: Final[dict[str, Any]] = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of token_file, at the doors on the network; no other asks for it.",
}


def _description(route: Route) -> str:
    doors = ", ".join(words for door, words in _DOORS.items() if door in route.doors)
    asking = " and ".join(words for door, words in _DOORS.items() if _by_token(route, door))
    told = f"{route.description or route.summary + '.'} Answered at {doors}"
    return f"{told}; with the token also at {asking}." if asking else f"{told}."


def _by_token(route: Route, door: Door) -> bool:
    return door not in route.doors and route.by_token(door)


def _details(route: Route) -> dict[str, Any]:
    """What a route takes and answers.

    It is put into the finished document, since FastAPI would leave out of the
    examples what is null.
    """
    responses = {str(status): _response(answer) for status, answer in route.answers.items()}
    details: dict[str, Any] = {
        "x-weightd-doors": [door for door in _DOORS if door in route.doors or route.by_token(door)],
        "security": [{}, {"token": []}] if any(_by_token(route, one) for one in _DOORS) else [],
        "parameters": [*_path(route), *_query(route), *_headers(route)],
        "responses": responses | _refusals(route.all_errors),
    }
    if route.body is not None:
        details["requestBody"] = {"required": True, "content": _body(route.body)}
    return details


def _operation(route: Route) -> str:
    name = getattr(route.handler, "__name__", "operation")
    return f"head_{name}" if route.method == "HEAD" and not route.own_head else name


def _path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, **_PATH_PARAMETERS[name]}
        for name in route.parameters
    ]


def _query(route: Route) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema()
    parameters = []
    for name, field in schema.get("properties", {}).items():
        kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        plain = {k: v for k, v in field.items() if k not in ("title", "default", "anyOf")}
        if len(kinds) == 1:
            plain = kinds[0] | plain
        elif kinds:
            plain["anyOf"] = kinds
        description = plain.pop("description", kinds[0].get("description") if kinds else None)
        if field.get("default") is not None:
            plain["default"] = field["default"]
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": description or name,
                "schema": plain,
            }
        )
    return parameters


def _headers(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.description,
            "schema": {"type": "string"} | header.schema,
        }
        for header in route.headers
    ]


def _body(body: type[BaseModel] | dict[str, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(body, dict):
        return {media: {"schema": schema} for media, schema in body.items()}
    return {"application/json": {"schema": _reference(body)}}


def _response(answer: Answer) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if answer.shape is not None:
        content["application/json"] = {"schema": _reference(answer.shape)}
    if answer.line is not None:
        each = f"A `{answer.line.__name__}` a line."
        content["application/x-ndjson"] = {"schema": {"type": "string", "description": each}}
    for media, schema in answer.media.items():
        content[media] = {"schema": schema}
    response: dict[str, Any] = {"description": answer.description}
    if content:
        response["content"] = content
    if answer.headers:
        response["headers"] = _response_headers(answer.headers)
    return response


def _response_headers(names: Iterable[str]) -> dict[str, Any]:
    return {
        name: {"description": _RESPONSE_HEADERS[name][0], "schema": _RESPONSE_HEADERS[name][1]}
        for name in names
    }


def _refusals(errors: Errors) -> dict[str, dict[str, Any]]:
    """The problem documents that a route can answer, by status."""
    by_status: dict[int, dict[str, type[WeightdError]]] = defaultdict(dict)
    for error in errors:
        by_status[kind_of(error).status].setdefault(error.code, error)
    return {str(status): _refusal(codes) for status, codes in sorted(by_status.items())}


def _refusal(codes: Mapping[str, type[WeightdError]]) -> dict[str, Any]:
    shapes = [_reference(kind_of(error).shape) for error in codes.values()]
    names = ", ".join(f"`{code}`" for code in codes)
    refusal: dict[str, Any] = {
        "description": f"{names}. Carries the figures.",
        "content": {
            MEDIA_TYPE: {
                "schema": shapes[0] if len(shapes) == 1 else {"oneOf": shapes},
                "examples": {
                    code: {"value": document(EXAMPLES[error])} for code, error in codes.items()
                },
            }
        },
    }
    # The example's own, since some say it of the case and not of the class.
    if any(EXAMPLES[error].retry_after is not None for error in codes.values()):
        refusal["headers"] = _response_headers(["Retry-After"])
    return refusal


def _reference(shape: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(model=shape.__name__)}


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    """Every shape that the routes and the problems refer to."""
    shapes: set[type[BaseModel]] = {kind.shape for kind in TABLE.values()}
    for route in routes:
        if isinstance(route.body, type):
            shapes.add(route.body)
        for answer in route.answers.values():
            shapes.update(shape for shape in (answer.shape, answer.line) if shape is not None)
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    _, schema = models_json_schema(
        [(shape, "validation") for shape in ordered], ref_template=_REFERENCE
    )
    definitions: dict[str, Any] = schema["$defs"]
    return definitions
