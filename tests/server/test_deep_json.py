"""JSON that is nested too deeply is a wrong request, wherever a stranger can send it."""

import pytest

from tests.server.installation import Server

DEEP = {
    "lists": b"[" * 200_000 + b"]" * 200_000,
    "objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "in a field": b'{"name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "unclosed": b"[" * 400_000,
}


@pytest.mark.parametrize("body", DEEP.values(), ids=list(DEEP))
@pytest.mark.parametrize("path", ["/api/auth/sign-in", "/api/projects", "/api/plan", "/api/requirements"])
def test_deep_json_is_refused_with_a_problem(sqlite_server: Server, path: str, body: bytes) -> None:
    answer = sqlite_server.stranger.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/playground/{}/v1/chat/completions"])
def test_deep_json_to_a_model_is_refused(sqlite_server: Server, path: str) -> None:
    address = path.format("00000000-0000-0000-0000-000000000000")
    answer = sqlite_server.stranger.post(
        address, content=DEEP["in a field"], headers={"Content-Type": "application/json"}
    )
    assert 400 <= answer.status_code < 500, answer.text[:300]
