"""The fakes of Lambda and RunPod, with machines that are bare."""

import shlex
from pathlib import Path
from typing import Any

from tests.bare.machine import BareMachine, Image, machine_of
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.machine import Machine
from tests.providers.services.runpod_service import RunPodService


class BareLambda(LambdaService):
    """Its machines run their user data in a root of their own."""

    provider, gpu = "lambda", "A10"

    def __init__(self, image: Image) -> None:
        super().__init__()
        self.image = image

    @property
    def ports(self) -> tuple[int, ...]:
        """What its machines must reach."""
        return ()

    def machine(self, folder: Path, script: str) -> Machine:
        return machine_of(folder, self.image, script, clock=self.clock)


class BareRunPod(RunPodService):
    """Its pods run their arguments in a root of their own; the disk of the pod outlives the container."""

    provider, gpu = "runpod", "RTX 4090"

    def __init__(self, image: Image) -> None:
        super().__init__()
        self.image = image

    @property
    def ports(self) -> tuple[int, ...]:
        """A pod deletes itself through the API."""
        return (self._server.server_port,)

    def _container(self, identifier: str, body: dict[str, Any]) -> Machine:
        folder = Path(self._folder.name) / identifier
        self.image.write(folder, {})
        environment = {**body["env"], **self.pod_environment(identifier)}
        home = body["mounts"]["persistent"]["path"]
        return BareMachine(folder, self.image, home, shlex.split(body["args"]), environment, clock=self.clock)
