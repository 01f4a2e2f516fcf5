"""What every provider can do, in values that a worker keeps and compares."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from gpubloom.agent import ExitRecord, JobSpec
from gpubloom.errors import CodedError


class ProviderError(CodedError):
    """A provider cannot do what was asked. The text is a sentence for the owner of the job."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Reservation:
    """Devices that nobody else can have while this, or an agent it was handed to, lives.

    `release` gives up this process's share only: an agent that was started with it keeps the devices.
    """

    def __init__(self, devices: Sequence[str], descriptors: Sequence[int], environment: Mapping[str, str]):
        self.devices = tuple(devices)
        self.environment = dict(environment)
        self._descriptors = list(descriptors)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Open files that hold the devices, to be inherited by the agent."""
        return tuple(self._descriptors)

    def release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Reservation({', '.join(self.devices)})"


@dataclass(frozen=True)
class AgentStatus:
    """What is known of one attempt.

    `alive`: something of the run lives, agent or training process. `agent_alive`: the agent does, so output
    is read and the end will be recorded. `attempt`: the newest attempt that was ever started in the
    directory, 0 for none. `exit`: how the attempt that was asked about ended. An attempt that was started,
    has no exit and is not alive has vanished. `refused`: what the machine of the attempt sent that could not
    be accepted; the attempt was ended for it.
    """

    alive: bool
    agent_alive: bool
    attempt: int
    exit: ExitRecord | None
    refused: str | None = None


@dataclass(frozen=True)
class GracePeriod:
    """How long a run that was told to end has, before it is stopped, and before it is ended by force."""

    stop_seconds: float = 20.0
    force_seconds: float = 30.0


class Provider(Protocol):
    """What runs jobs: this machine, or a rented instance."""

    grace_period: GracePeriod

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Release the resources of this process. Agents keep running."""

    def reserve(self, gpus: int, *, side_slot: bool = False) -> Reservation | None:
        """None: taken at the moment. ProviderError: there are never that many. `side_slot`: without GPUs, the
        slot for a small job during a long one."""

    async def submit(self, spec: JobSpec, reservation: Reservation) -> None:
        """Starts an attempt, once: an attempt that runs or ran is left alone."""

    async def status(self, run_dir: Path, attempt: int) -> AgentStatus: ...

    async def stop(self, run_dir: Path, *, force: bool) -> None:
        """Asks the attempt that runs to save and stop; with `force` ends it. Nothing runs: nothing to do."""
