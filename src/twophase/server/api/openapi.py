"""The OpenAPI document of the HTTP port: `GET /api/twophase/openapi.json`.

The port itself publishes it. It is made from the operations that the port serves, and from the types that requests are
read into and answers are written from. Where the wire is looser or stricter than a type, the document is corrected
here: unknown fields are ignored, keys may be written in any case, a refusal is the same object everywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from starlette.requests import Request

from twophase.core.limits import GID_BYTES_MAX
from twophase.core.many import MESSAGES_MAX
from twophase.core.options import MEANINGS
from twophase.server.api.dtm_jsonrpc import ID_CHARACTERS_MAX, RpcCall
from twophase.server.api.many_http import PrepareMany, SubmitMany
from twophase.server.api.operation import Operation, Parameter, Served
from twophase.server.codecs.encode import Answer, Failure
from twophase.server.codecs.wire import WireRequest

OPENAPI_PATH: Final = "/api/twophase/openapi.json"
_PUBLISHED: Final = Operation(path=OPENAPI_PATH, tag="watching", summary="This document", answer=dict[str, Any])
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_ANY_TEXT: Final[Mapping[str, Any]] = {"schema": {"type": "string"}}
_WORD: Final = re.compile("[A-Za-z]+")
_SCHEMAS: Final = "#/components/schemas/"
_RESPONSES: Final = "#/components/responses/"

ANYWHERE: Final[Mapping[int, str]] = {
    400: "the request cannot be understood, or exceeds a limit: `message` names the field and the limit",
    401: "this server needs a token, and the request has no token that it knows",
    403: "the token does not allow the request",
    408: "the request did not arrive in time",
    413: "the body is too large",
    429: "the owner of the token has used up its quota: retry; `Retry-After` says when",
    431: "the head is too large",
    503: "overloaded, draining, or the store fails: retry; `Retry-After` says when",
}
"""Refusals of any request, besides its own."""

FIELDS: Final[Mapping[str, str]] = {
    "gid": "the message's id; 1 to 128 bytes, no control characters",
    "trans_type": "`msg`",
    "steps": "the branches, in order",
    "payloads": "the body of each branch's call, already serialised; as many as there are steps",
    "query_prepared": "where to ask whether the local transaction committed",
    "protocol": "`http` (the default), `grpc` or `json-rpc`: how addresses are called",
    **MEANINGS,
    "retry_limit": "ignored",
    "retry_count": "ignored",
    "rollback_reason": "ignored",
    "passthrough_headers": "ignored",
}
"""Descriptions of the fields of a prepare, submit or abort.

The only two that are needed come first.
"""

_MESSAGES: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {"$ref": f"{_SCHEMAS}{WireRequest.__name__}"},
    "maxItems": MESSAGES_MAX,
}
_NARROWED: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    WireRequest.__name__: {
        "gid": {"type": "string", "minLength": 1, "maxLength": GID_BYTES_MAX.value},
        "trans_type": {"type": "string", "enum": ["msg"]},
        "protocol": {"enum": ["http", "grpc", "json-rpc", "", None]},
        "durability": {"enum": ["submit", "check-back", "", None]},
    },
    RpcCall.__name__: {
        "jsonrpc": {"type": "string", "enum": ["2.0"]},
        "id": {"type": "string", "minLength": 1, "maxLength": ID_CHARACTERS_MAX},
        "method": {"type": "string", "enum": ["newGid", "prepare", "submit", "abort"]},
        "params": {"anyOf": [{"$ref": f"{_SCHEMAS}{WireRequest.__name__}"}, {"type": "null"}]},
    },
    PrepareMany.__name__: {"messages": _MESSAGES},
    SubmitMany.__name__: {
        "messages": _MESSAGES,
        "gids": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MESSAGES_MAX},
    },
}
"""Fields that accept less than the type they are read into.

The type accepts more so that a refusal can give the reason.
"""

_REQUIRED: Final[Mapping[str, list[str]]] = {
    RpcCall.__name__: ["jsonrpc", "id", "method"],
    PrepareMany.__name__: ["messages"],
}


class OpenApi:
    """Publishes the document, which is made when it is first requested.

    Arguments:
        operations: every other operation of the port.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = (*operations, _PUBLISHED)

    def served(self) -> list[Served]:
        """Return the operation with its handler."""
        return [Served(_PUBLISHED, self._publish)]

    @functools.cached_property
    def encoded(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.encode(document(self.operations))

    async def _publish(self, _request: Request) -> Answer:
        return Answer(200, self.encoded)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Make the document of these operations.

    >>> from twophase.server.api.dtm_http import HOT_OPERATIONS
    >>> sorted(document(HOT_OPERATIONS)["paths"]["/api/dtmsvr/prepare"]["post"]["responses"])[:3]
    ['200', '400', '401']
    """
    types = list(dict.fromkeys([Failure, WireRequest, *_types(operations)]))
    described, components = msgspec.json.schema_components(map(_describable, types), ref_template=f"{_SCHEMAS}{{name}}")
    schemas = dict(zip(types, described, strict=True))
    for name, component in components.items():
        _correct(component, _NARROWED.get(name, {}))
    request = components[WireRequest.__name__]
    request["required"] = list(FIELDS)[:2]
    for name, field in request["properties"].items():
        field["description"] = FIELDS.get(name, "")
    for name, required in _REQUIRED.items():
        if name in components:
            components[name]["required"] = required
    if SubmitMany.__name__ in components:
        components[SubmitMany.__name__]["oneOf"] = [{"required": ["messages"]}, {"required": ["gids"]}]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _described_path(operation)
        for method in operation.methods:
            paths.setdefault(path, {})[method.lower()] = _operation(operation, method.lower(), schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "twophase coordinator",
            "version": version("twophase"),
            "description": "dtm's HTTP API for 2-phase messages, and twophase's own. An unknown path, and a method "
            "that a path does not have, are both answered 404, as dtm does. Every GET answers HEAD too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {_name(status): _refusal(text, schemas[Failure]) for status, text in ANYWHERE.items()},
        },
    }


def _types(operations: Sequence[Operation]) -> Iterator[Any]:
    for operation in operations:
        yield from (one for one in (operation.request, operation.answer) if one is not None)
        yield from (parameter.type for parameter in operation.parameters)
        yield from (shape for shapes in operation.shapes.values() for shape in shapes)


def _describable(kind: Any) -> Any:
    """Return a request's type without the pieces that are read later.

    msgspec cannot describe the default of such a piece.
    """
    if kind not in {WireRequest, RpcCall, PrepareMany, SubmitMany}:
        return kind
    fields = msgspec.structs.fields(kind)
    undescribed = (msgspec.Raw, list[WireRequest], list[WireRequest] | None)
    return msgspec.defstruct(
        kind.__name__, [(field.name, Any if field.type in undescribed else field.type, None) for field in fields]
    )


def _correct(component: dict[str, Any], narrowed: Mapping[str, Mapping[str, Any]]) -> None:
    """Correct a type to what the wire accepts.

    Unknown fields are ignored, and a field without a value is left out.
    """
    component.pop("additionalProperties", None)
    for name, field in component.get("properties", {}).items():
        if name in narrowed:
            field.clear()
            field.update(narrowed[name])
        if field.get("default", "") is None:
            del field["default"]


def _described_path(operation: Operation) -> str:
    """Return the path as OpenAPI writes it, without Starlette's converters."""
    return operation.path.replace(":path}", "}")


def _operation(operation: Operation, method: str, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    words = _WORD.findall(_described_path(operation))
    described: dict[str, Any] = {
        "operationId": "".join([method, *map(str.capitalize, words)]),
        "tags": [operation.tag],
        "summary": operation.summary,
    }
    if operation.description:
        described["description"] = operation.description
    if operation.parameters:
        described["parameters"] = [_parameter(parameter, schemas) for parameter in operation.parameters]
    if operation.request is not None:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {_JSON: {"schema": schemas[operation.request]}},
        }
    described["responses"] = dict(sorted(_responses(operation, schemas)))
    return described


def _parameter(parameter: Parameter, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.required or parameter.where == "path",
        "description": parameter.description,
        "schema": schemas[parameter.type],
    }


def _responses(operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    if operation.answer is None:
        yield "200", {"description": "text", "content": {_TEXT: _ANY_TEXT}}
    else:
        yield "200", {"description": "done", "content": {_JSON: {"schema": schemas[operation.answer]}}}
    own = {status: ANYWHERE[status] for status in operation.shapes if status in ANYWHERE} | dict(operation.refusals)
    for status in ANYWHERE.keys() - own.keys():
        yield str(status), {"$ref": f"{_RESPONSES}{_name(status)}"}
    if any(parameter.where == "path" for parameter in operation.parameters):
        response = _refusal(own.pop(404, "no such path"), schemas[Failure])
        response["content"][_TEXT] = _ANY_TEXT  # an empty part of the path makes it another path
        yield "404", response
    for status, text in own.items():
        shapes = [schemas[shape] for shape in operation.shapes.get(status, (Failure,))]
        yield str(status), _refusal(text, shapes[0] if len(shapes) == 1 else {"anyOf": shapes})


def _refusal(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": schema}}}


def _name(status: int) -> str:
    return "".join(word.capitalize() for word in HTTPStatus(status).phrase.split())
