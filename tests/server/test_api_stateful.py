"""Chains of requests: what one answer names, the next request uses, as the links of the description say.

Schemathesis finds the links between most routes that make, list, read, change and delete a thing; LISTS has
the others. Each scenario has an account of its own with one of almost everything, so that no list is empty.
"""

import os
import time
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase

from tests.server.installation import Installation, Server
from tests.server.test_api_fuzz import ENDLESS, ask, complaint_about, fuzzed, real_ids  # noqa: F401
from tests.starved import starved_between, starved_threads, with_children

# On each of the two databases.
CASES = 2_600
SCENARIOS = 100
STEPS = 12
MOST_SECONDS = 2.0


# Lists, where in them ids are, and the parameter of routes that takes such an id.
LISTS = [
    *(("/api/jobs", f"items/{position}/id", "job_id") for position in range(2)),
    # The rows of a file, the passages of documents, and questions about them.
    *(("/api/datasets", f"items/{position}/id", "dataset_id") for position in range(3)),
    ("/api/models", "items/0/id", "model_id"),
    ("/api/runs", "sections/0/rows/0/id", "run_id"),
    ("/api/run-views", "items/0/id", "view_id"),
    ("/api/alert-channels", "items/0/id", "channel_id"),
    ("/api/users", "items/0/id", "user_id"),
    ("/api/me/tokens", "items/0/id", "token_id"),
]


def _linked(description: dict[str, Any]) -> dict[str, Any]:
    """The description with links from these lists to every route that takes an id of theirs."""
    linked = deepcopy(description)
    for listed, pointer, name in LISTS:
        links = linked["paths"][listed]["get"]["responses"]["200"].setdefault("links", {})
        links |= {
            f"{name} at {pointer} of {operation['operationId']}": {
                "operationId": operation["operationId"],
                "parameters": {name: f"$response.body#/{pointer}"},
            }
            for path, operations in linked["paths"].items()
            for operation in operations.values()
            if f"{{{name}}}" in path and path not in ENDLESS
        }
    return linked


@dataclass
class Record:
    """What became of the requests: how many, the routes with a good answer, and what was wrong."""

    asked: int = 0
    answered: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def _machine(server: Server, installation: Installation, seed: int, record: Record) -> Any:
    schema = schemathesis.openapi.from_dict(_linked(server.app.openapi()))
    for path in ENDLESS:
        schema = schema.exclude(path=path)

    class Scenarios(schema.as_state_machine()):  # type: ignore[misc]
        # Another route opens most scenarios of each round.
        rule_order_seed = seed

        def setup(self) -> None:
            owner = installation.add_user(f"u{uuid4().hex}", role="admin")
            real_ids(installation, owner)
            self.browser = server.signed_in(owner)
            # The server runs in this process, PostgreSQL in children of it.
            self.processes = with_children(os.getpid())

        def call(self, case: schemathesis.Case, **_: Any) -> schemathesis.Response:
            waited, begin = starved_threads(*self.processes), time.perf_counter()
            answer = ask(self.browser, case)
            seconds = time.perf_counter() - begin
            if seconds > MOST_SECONDS:
                seconds -= sum(starved_between(waited, starved_threads(*with_children(os.getpid()))))
            record.asked += 1
            if answer.status_code < 400:
                record.answered.add(f"{case.method} {case.path}")
            if complaint := complaint_about(case, answer):
                record.wrong.append(complaint)
            if seconds > MOST_SECONDS:
                record.wrong.append(f"{seconds:.1f} s: {case.as_curl_command()}")
            return schemathesis.Response.from_any(answer)

        def validate_response(self, *_: Any, **__: Any) -> None:
            """Complaints are collected: looking for a shorter chain takes longer than all chains."""

    return Scenarios


@pytest.mark.long
@pytest.mark.timeout(900)
def test_chains_of_requests_meet_no_server_error_and_no_slow_answer(
    fuzzed: Server,  # noqa: F811
    installation: Installation,
) -> None:
    record = Record()
    settings = hypothesis.settings(
        max_examples=SCENARIOS,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seed = 0
    while record.asked < CASES:
        # What a server answers depends on its past: a chain can differ when Hypothesis repeats its beginning.
        with suppress(hypothesis.errors.Flaky):
            hypothesis.seed(seed)(_machine(fuzzed, installation, seed, record)).run(settings=settings)
        seed += 1
    assert not record.wrong, f"{len(record.wrong)} answers:\n" + "\n\n".join(record.wrong[:8])
    assert len(record.answered) > 35, f"chains led to these routes only: {sorted(record.answered)}"
