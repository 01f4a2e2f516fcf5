"""Somebody who submits a folder of their own over HTTP, to services that stand in for the real ones."""

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from gpubloom.offers import shipped_prices
from gpubloom.server.jobs.tables import TrainingJob
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.modal_service import ModalService
from tests.providers.services.paperspace_service import PaperspaceService
from tests.providers.services.runpod_service import RunPodService
from tests.server.installation import Browser, Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote.renter import Renter
from tests.worker.remote.toy_provider import ToyService

FOLDER = Path(__file__).parents[2] / "nanogpt_folder"
SERVICES: dict[str, Any] = {
    "lambda": LambdaService,
    "modal": ModalService,
    "paperspace": PaperspaceService,
    "runpod": RunPodService,
}
OFFERS: dict[str, dict[str, Any]] = {
    "lambda": {"provider": "lambda", "gpu": "A10"},
    "modal": {"provider": "modal", "gpu": "T4", "kind": "per_second"},
    "paperspace": {"provider": "paperspace", "gpu": "RTX A4000"},
    "runpod": {"provider": "runpod", "gpu": "RTX 4090"},
}


class Shopper(Renter):
    """`browser` is signed in; `bloom` calls it from a scenario without holding up the worker."""

    browser: Browser

    @contextmanager
    def shopping(self, tmp_path: Path) -> Iterator["Shopper"]:
        prices = tmp_path / "prices.json"
        prices.write_text(json.dumps({"providers": _by_the_second()}))
        bucket = {name: getattr(self.settings, name) for name in _BUCKET}
        with self.installation.serve(prices=prices, **bucket) as server:
            self.browser = server.signed_in(self.user)
            yield self

    def connect_by_http(self, provider: str, credentials: dict[str, str]) -> None:
        answer = self.browser.put(f"/api/providers/{provider}/credentials", json={"values": credentials})
        assert answer.status_code == 200, answer.text

    async def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = await asyncio.to_thread(self.browser.request, method, path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def submit(self, *arguments: str, **body: Any) -> UUID:
        files = [
            {
                "path": path.relative_to(FOLDER).as_posix(),
                "base64": base64.b64encode(path.read_bytes()).decode(),
            }
            for path in sorted(FOLDER.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        ]
        # What it imports is on the fakes' machines already.
        asked = {"files": files, "arguments": list(arguments), "packages": [], **body}
        asked = {name: value for name, value in asked.items() if value is not None}
        return UUID((await self.ask("POST", "/api/ml-jobs", asked, status=201))["job_id"])

    async def status(self, job_id: UUID) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("GET", f"/api/ml-jobs/{job_id}/status")
        return found

    async def artifacts(self, job_id: UUID) -> dict[str, int]:
        found = await self.ask("GET", f"/api/jobs/{job_id}/artifacts")
        return {item["path"]: item["size"] for item in found["items"]}

    async def trained(self, job_id: UUID, steps: int, attempt: int = 1) -> TrainingJob:
        """Wait until an attempt has stored so many steps."""
        while True:
            losses = await asyncio.to_thread(self.losses, job_id)
            if sum(found[-1][0] == attempt for found in losses.values()) >= steps:
                return await asyncio.to_thread(self.job, job_id)
            job = await self.when(job_id, lambda job: True)
            assert job.status not in {"failed", "completed"}, f"{job.error_message}\n{self.output(job_id)}"
            await asyncio.sleep(0.1)


_BUCKET = ("storage_bucket", "storage_key", "storage_secret", "storage_endpoint", "storage_prefix")


def _by_the_second() -> dict[str, Any]:
    """The services as they are known, but billed by the second: a test cannot wait for an hour to end."""
    facts = shipped_prices().providers
    return {name: {**facts[name].model_dump(mode="json"), "billing": "second"} for name in SERVICES}


def shopper(installation: Installation, bucket: S3Server | None, toy: ToyService) -> Shopper:
    return Shopper(installation, bucket, toy)
