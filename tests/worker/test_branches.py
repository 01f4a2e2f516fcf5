"""A branch trains on from a checkpoint of another job, with a real server, worker and trainer."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.test_studio_by_api import LiveApp

pytestmark = pytest.mark.timeout(600)

CONFIG = {
    "max_steps": 12,
    "batch_size": 2,
    "device": "cpu",
    "model": {"layers": 1, "hidden_size": 32, "heads": 2, "context_length": 32},
    "checkpoint": {"every_steps": 4, "keep_last": 5},
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    app = LiveApp(tmp_path_factory.mktemp("branches") / "home")
    try:
        yield app
    finally:
        app.close()


def _completed(app: LiveApp, job: dict[str, Any]) -> dict[str, Any]:
    return app.until(f"/api/jobs/{job['id']}", lambda found: found["status"] == "completed")


@pytest.mark.long
def test_a_branch_trains_on_from_a_checkpoint_and_leaves_the_first_run_alone(app: LiveApp) -> None:
    project = {"name": "Branches", "model_architecture": "transformer", "model_size": 0.001}
    first = _completed(app, app.post("/api/jobs", {"name": "First", "project": project, "config": CONFIG}))
    saved = app.get(f"/api/jobs/{first['id']}/checkpoints")["items"]
    assert [item["step"] for item in saved] == [12, 8, 4]
    chosen = next(item for item in saved if item["step"] == 8)
    address = f"/api/jobs/{first['id']}/checkpoints/{chosen['id']}/branch"
    branch = _completed(app, app.post(address, {"max_steps": 16, "learning_rate": 1e-4}))
    assert branch["summary"]["resumed_from_step"] == 8
    assert branch["summary"]["step"] == 16
    assert [item["step"] for item in app.get(f"/api/jobs/{branch['id']}/checkpoints")["items"]] == [16, 12]
    assert app.get(f"/api/jobs/{first['id']}/checkpoints")["items"] == saved
    # Both held a machine, and the wait in the queue is not counted.
    assert branch["active_seconds"] > 0
    assert branch["active_since"] is None
