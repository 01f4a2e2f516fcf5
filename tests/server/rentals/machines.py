"""Rows of rented machines, as a worker would have written them."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.tables import Rental, StoredArtifact
from tests.server.installation import Installation


def add_rental(installation: Installation, job: TrainingJob, **changes: Any) -> Rental:
    fields = {
        "id": uuid4(),
        "user_id": job.user_id,
        "project_id": job.project_id,
        "job_id": job.id,
        "job_name": job.name,
        "attempt": 1,
        "provider": "toy",
        "key": uuid4().hex,
        "gpu": "A100",
        "gpus": 1,
        "kind": "on_demand",
        "hourly": 3.0,
        "state": "ended",
        "billed_from": now() - timedelta(seconds=60),
        "billed_to": now(),
        "cost": 0.05,
    }
    return installation.add(Rental(**{**fields, **changes}))


def add_artifact(installation: Installation, job_id: Any, **changes: Any) -> Any:
    """The id of a file of a job that is kept in the bucket."""
    fields = {
        "id": uuid4(),
        "job_id": job_id,
        "path": "out/w.bin",
        "size": 1,
        "sha256": "0" * 64,
        "stored_at": now(),
    }
    return installation.add(StoredArtifact(**{**fields, **changes})).id
