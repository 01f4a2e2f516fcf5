"""Measures the speed of a CPU once, while the worker has nothing to do.

A plan that assumes the speed of a CPU can be wrong by a factor of seven. The measurement takes some seconds
and uses every core, so it waits until no job has run for a while, and a job that starts ends it.
"""

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import structlog

from gpubloom.plan import Hardware
from gpubloom.plan.hardware import Calibration
from gpubloom.plan.machine_file import measured_hardware, measuring_command, store_measured

log = structlog.get_logger("bloom.worker")

# Long enough that a person who starts a job as soon as the web app opens does not wait for it.
IDLE_SECONDS = 20.0
_POLL_SECONDS = 0.25
_LONGEST_SECONDS = 120.0


async def calibrate_when_idle(
    home: Path,
    is_idle: Callable[[], bool],
    *,
    idle_seconds: float = IDLE_SECONDS,
    command: tuple[str, ...] | None = None,
) -> Hardware | None:
    """Return this machine as it was measured. None: it is known already, has GPUs, or cannot be measured.

    `command`: prints the measured machine as JSON.
    """
    if command is None and importlib.util.find_spec("torch") is None:
        return None
    while True:
        await _idle_for(idle_seconds, is_idle)
        # Another worker of this machine, or `bloom plan --measure`, may have measured meanwhile.
        hardware = await asyncio.to_thread(measured_hardware, home)
        if hardware.gpus or hardware.calibration != Calibration():
            return None
        try:
            printed = await _output_while(is_idle, command or measuring_command())
            if printed is None:
                continue
            measured = Hardware.model_validate_json(printed)
        except (OSError, RuntimeError, ValueError) as problem:
            log.warning("the speed of this machine could not be measured", reason=str(problem))
            return None
        # Without a file the figures still count until this worker ends.
        with contextlib.suppress(OSError):
            await asyncio.to_thread(store_measured, home, measured)
        log.info("measured the speed of this machine, for the plans of later jobs")
        return measured


async def _idle_for(seconds: float, is_idle: Callable[[], bool]) -> None:
    clock = asyncio.get_running_loop().time
    since = clock()
    while clock() - since < seconds:
        await asyncio.sleep(min(_POLL_SECONDS, seconds))
        if not is_idle():
            since = clock()


async def _output_while(is_idle: Callable[[], bool], command: tuple[str, ...]) -> bytes | None:
    """Return what a process printed; None if it was ended because the worker got something to do."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    ending = asyncio.create_task(process.communicate())
    clock = asyncio.get_running_loop().time
    until = clock() + _LONGEST_SECONDS
    try:
        while not (await asyncio.wait([ending], timeout=_POLL_SECONDS))[0]:
            if not is_idle():
                return None
            if clock() > until:
                raise RuntimeError(f"it did not end within {_LONGEST_SECONDS:.0f} seconds")
        printed, complaints = ending.result()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = complaints.decode(errors="replace").strip().splitlines() or ["no output"]
        raise RuntimeError(lines[-1])
    return printed
