"""The description of the API, from which the web app is generated, leaves nothing to guess."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.installation import Server

# The shapes of the product's first description.
CAMEL_CASE = {
    "CamelJob",
    "CamelNewJob",
    "CamelProjectIn",
    "CamelQueuedJob",
    "MetricRow",
    "ProjectChange",
    "ProjectOut",
    # WebAuthn names their fields.
    "PasskeyCreation",
    "PasskeySignature",
}


@pytest.fixture
def description(sqlite_server: Server) -> dict[str, Any]:
    described: dict[str, Any] = sqlite_server.app.openapi()
    return described


def _parts(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for name, item in value.items():
            yield from _parts(item, f"{path}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parts(item, f"{path}/{index}")


def test_no_shape_holds_an_object_of_which_nothing_is_said(description: dict[str, Any]) -> None:
    free = [
        path
        for name, schema in description["components"]["schemas"].items()
        for path, part in _parts(schema, name)
        if part.get("additionalProperties") is True
        or (part.get("type") == "object" and not {"properties", "additionalProperties"} & set(part))
    ]
    assert free == []


def test_names_are_snake_case_except_where_others_chose_them(description: dict[str, Any]) -> None:
    camel = {
        name
        for name, schema in description["components"]["schemas"].items()
        if any(re.search("[a-z][A-Z]", field) for field in schema.get("properties", {}))
    }
    assert camel == CAMEL_CASE


def test_an_answer_is_never_a_bare_list_or_one_of_several_shapes(description: dict[str, Any]) -> None:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                if status.startswith("2"):
                    assert schema.get("type") != "array", f"{method} {path}"
                    assert not {"anyOf", "oneOf"} & set(schema), f"{method} {path}"


def test_lists_with_pages_have_one_form(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    paged = set()
    for path, methods in description["paths"].items():
        names = {
            each["name"] for each in methods.get("get", {}).get("parameters", []) if each["in"] == "query"
        }
        assert not names & {"page", "page_size", "before", "most"}, path
        if "offset" in names:
            answer = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            fields = schemas[answer["$ref"].rpartition("/")[2]]["properties"]
            # The run list is a table whose rows stand in sections.
            rows = {"sections", "rows"} if path == "/api/runs" else {"items"}
            assert {"total", *rows} <= set(fields), path
            assert "limit" in names, path
            paged.add(path)
    assert {"/api/jobs", "/api/projects", "/api/datasets", "/api/models", "/api/audit-events"} <= paged
