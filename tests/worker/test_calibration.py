"""A worker measures its CPU once, when it is idle, and not while a job runs."""

import asyncio
import sys
from pathlib import Path

import pytest

from gpubloom.plan import Calibration, Hardware, machine_file
from gpubloom.plan.machine_file import measured_hardware
from gpubloom.server.jobs.tables import Worker
from gpubloom.worker.calibration import calibrate_when_idle
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Installation
from tests.worker.machine import Machine

HERE = Hardware(name="here", host_memory_bytes=16 << 30, cpu_cores=2)
MEASURED = HERE.model_copy(
    update={"cpu_flops": 250e9, "calibration": Calibration(cpu_layer_seconds=2e-3, cpu_value_seconds=3e-9)}
)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_file, "detect_hardware", lambda: HERE)


def _prints(folder: Path) -> tuple[str, ...]:
    """A measurement that notes that it began."""
    script = "import sys; open(sys.argv[1], 'a').write('began\\n'); print(sys.argv[2])"
    return (sys.executable, "-c", script, str(folder / "began"), MEASURED.model_dump_json())


@pytest.mark.usefixtures("here")
def test_an_idle_worker_measures_an_unknown_cpu_and_keeps_the_result(tmp_path: Path) -> None:
    async def measure() -> Hardware | None:
        return await calibrate_when_idle(tmp_path, lambda: True, idle_seconds=0.0, command=_prints(tmp_path))

    assert asyncio.run(measure()) == MEASURED
    assert measured_hardware(tmp_path) == MEASURED
    assert asyncio.run(measure()) is None
    assert (tmp_path / "began").read_text() == "began\n"


@pytest.mark.usefixtures("here")
def test_a_job_that_starts_ends_the_measurement_and_it_is_repeated_afterwards(tmp_path: Path) -> None:
    busy = False
    ended = asyncio.Event()
    # The first measurement hangs, as one on a busy machine may; the second one answers.
    script = (
        "import pathlib, sys, time\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "first = not file.exists()\n"
        "file.touch()\n"
        "time.sleep(600 if first else 0)\n"
        "print(sys.argv[2])\n"
    )
    command = (sys.executable, "-c", script, str(tmp_path / "began"), MEASURED.model_dump_json())

    def is_idle() -> bool:
        if busy:
            ended.set()
        return not busy

    async def scenario() -> Hardware | None:
        nonlocal busy
        measuring = asyncio.create_task(
            calibrate_when_idle(tmp_path, is_idle, idle_seconds=0.01, command=command)
        )
        while not (tmp_path / "began").exists():
            await asyncio.sleep(0.01)
        busy = True
        await ended.wait()
        assert not measuring.done()
        busy = False
        return await asyncio.wait_for(measuring, 60)

    assert asyncio.run(scenario()) == MEASURED


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("script", ["raise SystemExit('no torch')", "print('{}')"])
def test_a_measurement_that_fails_changes_nothing(tmp_path: Path, script: str) -> None:
    command = (sys.executable, "-c", script)
    found = asyncio.run(calibrate_when_idle(tmp_path, lambda: True, idle_seconds=0.0, command=command))
    assert found is None
    assert measured_hardware(tmp_path) == HERE


def test_the_worker_announces_what_was_measured(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(installation)

    async def measured(home: Path, is_idle: object) -> Hardware:
        return MEASURED

    monkeypatch.setattr("gpubloom.worker.loop.calibrate_when_idle", measured)
    monkeypatch.setattr("gpubloom.worker.loop.SHOW_EVERY_SECONDS", 0.05)

    def announced() -> dict[str, object]:
        rows = installation.all(Worker)
        return rows[0].hardware if rows else {}

    async def scenario() -> None:
        async with machine.worker():
            while (await asyncio.to_thread(announced)).get("cpu_flops") != MEASURED.cpu_flops:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 60))
