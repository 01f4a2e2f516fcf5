"""One machine with a database, a home folder and workers, for tests that follow toy trainings."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from gpubloom.agent import AgentFiles, AgentRecord
from gpubloom.plan import TrainConfig, detect_hardware, plan
from gpubloom.providers import Devices
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.states import MAX_ATTEMPTS, Kind
from gpubloom.server.jobs.tables import MetricPoint, MetricSeries, TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings
from gpubloom.worker.loop import WorkerLoop
from gpubloom.worker.remote_attempt import PollIntervals
from tests.server.installation import Installation
from tests.worker.toy_files import TOY_MODEL, TOY_NAME

TIMEOUT_SECONDS = 120


class Machine:
    """Makes jobs and workers, and looks at what became of them. `pace`: of workers that are told no other."""

    poll_intervals = PollIntervals()

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.settings = Settings(
            _env_file=None, home=installation.home, database_url=installation.database_url
        )
        self.settings.home.mkdir(parents=True, exist_ok=True)
        self.user: User = installation.add_user("Ada")
        self.project: Project = installation.add(
            Project(
                id=uuid4(),
                user_id=self.user.id,
                name="P",
                model_architecture="transformer",
                model_size=0.001,
            )
        )

    def add_job(self, *, toy: dict[str, Any] | None = None, **changes: Any) -> UUID:
        """A queued job that runs the toy (`toy_files`)."""
        config = TrainConfig.model_validate(
            {"name": TOY_NAME, "data": {"train_path": "/nowhere"}, "device": "cpu"}
        )
        expected = plan(config, detect_hardware(), tokens_per_epoch=1000)
        job = TrainingJob(
            id=uuid4(),
            project_id=self.project.id,
            user_id=self.user.id,
            name="toy",
            config=config.model_dump(mode="json"),
            plan=expected.model_dump(mode="json"),
            **changes,
        )
        run_dir = self.run_dir(job.id)
        run_dir.mkdir(parents=True)
        (run_dir / "toy.json").write_text(json.dumps({"steps": 40, **(toy or {})}))
        self.installation.add(job)
        return job.id

    def add_task(self, kind: Kind, *, toy: dict[str, Any] | None = None, **changes: Any) -> UUID:
        """A queued task that runs the toy; its config is what a real one's would be."""
        about = {"kind": kind, "model": TOY_MODEL, "device": "cpu"}
        fields = {"max_attempts": MAX_ATTEMPTS[kind], "config": {**about, **changes.pop("config", {})}}
        job = TrainingJob(
            id=uuid4(),
            project_id=self.project.id,
            user_id=self.user.id,
            name="toy task",
            kind=kind,
            **{**fields, **changes},
        )
        run_dir = self.run_dir(job.id)
        run_dir.mkdir(parents=True)
        (run_dir / "toy.json").write_text(json.dumps(toy or {}))
        self.installation.add(job)
        return job.id

    def seen(self, job_id: UUID, attempt: int = 1) -> dict[str, Any]:
        """What a toy task found when an attempt of it began."""
        path = self.run_dir(job_id) / f"seen-{attempt}.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    async def began(self, job_id: UUID, attempt: int = 1) -> None:
        """Wait until an attempt of a toy task is under way."""
        await self.when(
            job_id,
            lambda job: job.status == "failed" or (self.run_dir(job_id) / f"seen-{attempt}.json").exists(),
        )
        await self.until(job_id, "running", "completed")

    def run_dir(self, job_id: UUID) -> Path:
        return run_directory(self.settings, job_id)

    def job(self, job_id: UUID) -> TrainingJob:
        found = self.installation.get(TrainingJob, job_id)
        assert found is not None
        return found

    async def change(self, job_id: UUID, **values: Any) -> None:
        """Ask something of a job. In a thread: the worker on this loop may be the one to wait for."""

        def work() -> None:
            job = self.job(job_id)
            self.installation.change(job, control_version=job.control_version + 1, **values)

        await asyncio.to_thread(work)

    @asynccontextmanager
    async def worker(
        self, *gpus: str, warm: bool = False, poll_intervals: PollIntervals | None = None
    ) -> AsyncIterator[WorkerLoop]:
        """A worker in this process, until the block ends; its runs go on. `gpus`: what the machine has."""
        database = Database(self.settings.database)
        devices = Devices(self.settings.home, find_gpus=lambda: gpus)
        provider = LocalProvider(self.settings.home, warm=warm, devices=devices)
        loop = WorkerLoop(self.settings, database, provider, poll_intervals or self.poll_intervals)
        stopping = asyncio.Event()
        task = asyncio.create_task(loop.run(stopping))
        try:
            yield loop
        finally:
            stopping.set()
            await task
            await database.close()

    def run_until(self, job_id: UUID, *statuses: str) -> TrainingJob:
        """Run a worker until the job has one of these statuses."""

        async def scenario() -> TrainingJob:
            async with self.worker():
                return await self.until(job_id, *statuses)

        return asyncio.run(scenario())

    async def until(self, job_id: UUID, *statuses: str) -> TrainingJob:
        return await self.when(job_id, lambda job: job.status in statuses)

    async def when(self, job_id: UUID, holds: Callable[[TrainingJob], bool]) -> TrainingJob:
        """Wait until something holds for a job."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds(job := await asyncio.to_thread(self.job, job_id)):
            assert time.monotonic() < deadline, (
                f"the job is {job.status} at step {job.summary.get('step')}: {job.error_message}\n"
                + self.output(job_id)
            )
            await asyncio.sleep(0.05)
        return job

    async def at_step(self, job_id: UUID, step: int) -> TrainingJob:
        while len(await asyncio.to_thread(self.losses, job_id)) < step:
            await self.when(job_id, lambda job: job.status != "failed")
            await asyncio.sleep(0.05)
        return await asyncio.to_thread(self.job, job_id)

    async def spoke(self, job_id: UUID, attempt: int) -> None:
        """Wait until an attempt has reported a step."""
        while not any(
            found[-1][0] == attempt for found in (await asyncio.to_thread(self.losses, job_id)).values()
        ):
            await asyncio.sleep(0.05)

    def losses(self, job_id: UUID) -> dict[int, list[tuple[int, float]]]:
        """The stored loss values by step, with their attempts."""
        with self.installation.session() as session:
            rows = session.execute(
                select(MetricPoint.x, MetricPoint.attempt, MetricPoint.value)
                .join(MetricSeries, MetricSeries.id == MetricPoint.series_id)
                .where(MetricSeries.job_id == job_id, MetricSeries.name == "train/loss")
                .order_by(MetricPoint.attempt)
            )
            found: dict[int, list[tuple[int, float]]] = {}
            for step, attempt, value in rows:
                found.setdefault(step, []).append((attempt, value))
            return found

    def agent(self, job_id: UUID) -> AgentRecord:
        record = AgentFiles(self.run_dir(job_id)).read_agent()
        assert record is not None
        return record

    async def holds(self, job_id: UUID, step: int) -> None:
        """Wait until a run that holds at a step is there, and everything up to it is stored."""
        await self.at_step(job_id, step)

    def let_go(self, job_id: UUID) -> None:
        (self.run_dir(job_id) / ".go").touch()

    def kill_training(self, job_id: UUID) -> None:
        os.killpg(self.agent(job_id).group, signal.SIGKILL)

    def kill_agent(self, job_id: UUID) -> None:
        os.kill(self.agent(job_id).agent.pid, signal.SIGKILL)

    def output(self, job_id: UUID) -> str:
        path = self.run_dir(job_id) / "logs/output.log"
        return path.read_text() if path.exists() else "(no output)"

    def weights(self, job_id: UUID) -> int:
        return int(json.loads((self.run_dir(job_id) / "model/config.json").read_text())["sum"])
