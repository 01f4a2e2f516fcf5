"""The devices of this machine: each GPU, and two slots for jobs that use none.

The second slot is for small work beside a long one: without it, talking to a model would have to wait for the
end of a training.

A device is a file under `<home>/devices`. Who holds the file (a `flock`, handed on to the agent) has the
device, so any number of workers can share a machine and none gives a GPU away twice.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gpubloom.agent.file_lock import hold
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.traincard.nvml import choose_visible, opened_nvml

CPU = "cpu"
CPU_SIDE_SLOT = "cpu-beside"


class Devices:
    """`find_gpus` names the machine's GPUs as CUDA knows them; asked once."""

    def __init__(self, home: Path, *, find_gpus: Callable[[], Sequence[str]] | None = None) -> None:
        self._folder = home / "devices"
        self.gpus = tuple(find_gpus() if find_gpus else find_visible_gpus(os.environ))

    def reserve(self, gpus: int, *, side_slot: bool = False) -> Reservation | None:
        """That many GPUs, or a CPU slot for 0, the second one `beside`; None when taken. Does not wait."""
        if gpus > len(self.gpus):
            there = f"{len(self.gpus)} GPU{'' if len(self.gpus) == 1 else 's'}" if self.gpus else "no GPU"
            raise ProviderError(
                "more_gpus_than_machine",
                f"The job needs {gpus} GPU{'' if gpus == 1 else 's'}, but this machine has {there}.",
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._alone() as alone:
            if not alone:
                return None
            slot = CPU_SIDE_SLOT if side_slot else CPU
            taken = self._take(self.gpus, gpus) if gpus else self._take((slot,), 1)
        if taken is None:
            return None
        names = list(taken)
        return Reservation(
            names,
            list(taken.values()),
            # An empty list hides every GPU: a job that asked for none must not take one from another.
            {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(names) if gpus else ""},
        )

    def _take(self, candidates: Sequence[str], count: int) -> dict[str, int] | None:
        taken: dict[str, int] = {}
        for name in candidates:
            if len(taken) == count:
                break
            if (descriptor := hold(self._folder / f"{name}.lock", tries=1)) is not None:
                taken[name] = descriptor
        if len(taken) == count:
            return taken
        for descriptor in taken.values():
            os.close(descriptor)
        return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        # Two workers that each want two GPUs must not end up with one each, both giving up.
        descriptor = hold(self._folder / "choosing.lock")
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)


def find_visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """GPUs by their lasting names (UUIDs), as far as CUDA_VISIBLE_DEVICES shows them; or none."""
    with opened_nvml() as nvml:
        if nvml is None:
            return ()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        every = tuple(str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)
    return choose_visible(every, environment.get("CUDA_VISIBLE_DEVICES"))
