"""Somebody whose jobs run on rented machines."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr
from sqlalchemy import select

from gpubloom.scripts.task import script_task
from gpubloom.server.clock import now
from gpubloom.server.jobs.files import write_files
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.credentials import seal
from gpubloom.server.rentals.tables import ProviderCredential, Rental
from gpubloom.worker.remote_attempt import PollIntervals
from tests.server.installation import Installation
from tests.storage.instances import QUICK
from tests.traincard_mirror.conftest import KEY as BUCKET_KEY
from tests.traincard_mirror.conftest import SECRET, S3Server
from tests.worker.machine import Machine
from tests.worker.remote.toy_provider import KEY, ToyService

POLL_INTERVALS = PollIntervals(
    receive=0.1,
    look=0.3,
    meter=0.3,
    checkpoint=4.0,
    first_pause=0.1,
    longest_pause=0.4,
    silence=1.0,
    terminate=2.0,
    margin=3.0,
    agent=QUICK,
)
# Over SSH each file is a call of a program: not as many batches in a second as of other stores.
SSH_POLL_INTERVALS = replace(
    POLL_INTERVALS, receive=0.5, look=1.0, silence=30.0, agent={**POLL_INTERVALS.agent, "every": 1.0}
)


class Renter(Machine):
    """Adds what jobs on rented instances need: a bucket, credentials, an offer that was taken."""

    poll_intervals = POLL_INTERVALS

    def __init__(self, installation: Installation, bucket: S3Server | None, service: ToyService) -> None:
        super().__init__(installation)
        self.service = service
        if bucket is not None:
            self._use(bucket)
        self.connect("toy", {"key": KEY})

    def _use(self, bucket: S3Server) -> None:
        self.settings = self.settings.model_copy(
            update={
                "storage_bucket": "bucket",
                "storage_key": BUCKET_KEY,
                "storage_secret": SecretStr(SECRET),
                "storage_endpoint": bucket.address,
                "storage_prefix": uuid4().hex,
            }
        )

    def connect(self, provider: str, values: dict[str, str]) -> None:
        sealed = seal(self.settings, self.user.id, provider, values)
        self.installation.add(
            ProviderCredential(user_id=self.user.id, provider=provider, sealed=sealed, created_at=now())
        )

    def rent(
        self, *, toy: dict[str, Any] | None = None, offer: dict[str, Any] | None = None, **job: Any
    ) -> UUID:
        """A job that waits for a machine at the toy service."""
        taken = {
            "provider": "toy",
            "gpu": "T4",
            "gpus": 1,
            "region": None,
            "kind": "on_demand",
            "hourly": 3600.0,
            "billing": "second",
            "estimate": {"low": 1.0, "likely": 2.0, "high": 4.0},
            **(offer or {}),
        }
        job_id = self.add_job(toy=toy, target=taken["provider"], offer=taken, gpus=1, **job)
        # What a training reads travels with it, so it has to be there.
        words = self.settings.home / "words.txt"
        words.write_text("to be or not to be\n")
        row = self.job(job_id)
        data = {**row.config["data"], "train_path": str(words)}
        self.installation.change(row, config={**row.config, "data": data})
        return job_id

    def rent_script(self, files: dict[str, str], **task: Any) -> UUID:
        """A script that waits for a machine at the toy service."""
        example = self.job(self.rent(status="cancelled"))
        job = TrainingJob(
            id=uuid4(),
            project_id=self.project.id,
            user_id=self.user.id,
            name="script",
            kind="script",
            config=script_task({"entry": "train.py", **task}).model_dump(mode="json"),
            target=example.target,
            offer=example.offer,
            gpus=1,
        )
        write_files(self.run_dir(job.id), {name: text.encode() for name, text in files.items()})
        self.installation.add(job)
        return job.id

    def rentals(self, job_id: UUID | None = None) -> list[Rental]:
        with self.installation.session() as session:
            statement = select(Rental).order_by(Rental.created_at, Rental.attempt)
            if job_id is not None:
                statement = statement.where(Rental.job_id == job_id)
            return list(session.scalars(statement))
