"""NVIDIA's library for looking at GPUs, for as long as something is asked."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """The module pynvml, ready to be asked; None without it, or without a driver."""
    nvml = _opened()
    try:
        yield nvml
    finally:
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def _opened() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
