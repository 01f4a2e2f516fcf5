"""The script that a rented machine begins with, run as it is."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpubloom.providers.cloud import Launch
from gpubloom.providers.cloud_init import user_data_script
from tests.errors import raises
from tests.providers.launches import ADDRESS, launch
from tests.providers.services.machine import Machine, plain_machine
from tests.waiting import wait_until


def booted(
    folder: Path,
    wanted: Launch,
    stubs: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    **changes: Any,
) -> Machine:
    """A machine that runs the script twice; what it starts outlives it until the machine goes."""
    machine = plain_machine(folder, "bash twice.sh; bash twice.sh; touch booted\n", stubs)
    machine.environment.update(environment or {})
    (folder / "twice.sh").write_text(user_data_script(wanted, **changes))
    machine.start()
    return machine


def test_a_script_that_runs_again_starts_no_second_job(tmp_path: Path) -> None:
    command = 'echo "one more" >>"$HOME/count"; sleep 600'
    machine = booted(tmp_path / "machine", launch(command=command))
    try:
        wait_until(lambda: (machine.folder / "booted").exists())
        wait_until(lambda: (machine.folder / "count").exists() and (machine.folder / "count").read_text())
        assert (machine.folder / "count").read_text() == "one more\n"
    finally:
        machine.vanish()


def test_quotes_dollars_and_line_breaks_of_a_command_arrive_as_they_are(tmp_path: Path) -> None:
    command = """cd "$HOME"
cat >text <<'END'
$HOME `id` 'single' "double" \\n {braces}
END
printf %s "$BLOOM_START" >told"""
    machine = booted(tmp_path / "machine", launch(command=command))
    try:
        wait_until(lambda: (machine.folder / "told").exists() and (machine.folder / "told").read_text())
        assert (machine.folder / "told").read_text() == ADDRESS
        assert (machine.folder / "text").read_text() == "$HOME `id` 'single' \"double\" \\n {braces}\n"
    finally:
        machine.vanish()


def test_the_address_is_in_what_becomes_a_file_and_nowhere_else_in_the_script() -> None:
    lines = user_data_script(launch(packages=("torch",), longest_seconds=60)).splitlines()
    [position] = [number for number, line in enumerate(lines) if "Hidden-Signature" in line]
    # An argument of even the shortest command would be in the process list for a moment.
    assert lines[position - 1] == "cat >environment <<'BLOOM_END_OF_FILE'"
    assert lines[position + 1] == "BLOOM_END_OF_FILE"


def test_a_launch_that_could_break_out_of_the_script_is_refused() -> None:
    for broken in (
        launch(start_address="https://a\nrm -rf /"),
        launch(command="echo\nBLOOM_END_OF_FILE\nrm -rf /"),
    ):
        with raises(ValueError, code="invalid_argument"):
            user_data_script(broken)


def test_a_script_is_sound_shell_with_everything_in_it(tmp_path: Path) -> None:
    script = user_data_script(
        launch(packages=("torch>=2.4", "numpy; python_version<'4'"), longest_seconds=10.2)
    )
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "longest=11\n" in script
    assert "packages=('torch>=2.4' 'numpy; python_version<'\"'\"'4'\"'\"'')\n" in script
    assert "longest=\n" in user_data_script(launch())
    assert "packages=()\n" in user_data_script(launch())


@pytest.mark.long
def test_an_instance_that_nobody_terminates_shuts_itself_down_after_its_job(tmp_path: Path) -> None:
    machine = booted(tmp_path / "machine", launch(command='touch "$HOME/done"; exit 3'), idle_seconds=1)
    try:
        wait_until(lambda: not machine.running)
        assert (machine.folder / "done").exists()
        assert (machine.folder / "powered-off").read_text() == "-P now\n"
    finally:
        machine.vanish()


def test_a_job_begins_also_when_its_packages_cannot_be_installed(tmp_path: Path) -> None:
    machine = booted(
        tmp_path / "machine",
        launch(command='python3 -c "import petals" 2>"$HOME/out"; touch "$HOME/done"', packages=("petals",)),
        {"python3": f'#!/bin/sh\n[ "$1" = -m ] && exit 1\nexec {sys.executable} "$@"\n'},
    )
    try:
        wait_until(lambda: (machine.folder / "done").exists())
        # The job says what it misses, and its owner reads that.
        assert "No module named 'petals'" in (machine.folder / "out").read_text()
    finally:
        machine.vanish()


@pytest.mark.long
def test_packages_are_there_for_the_job(tmp_path: Path) -> None:
    wheel = tmp_path / "petals-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("petals.py", "COUNT = 5\n")
        archive.writestr(
            "petals-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: petals\nVersion: 1.0\n"
        )
        archive.writestr("petals-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("petals-1.0.dist-info/RECORD", "")
    command = 'python3 -c "import petals; print(petals.COUNT)" >"$HOME/out" 2>&1; touch "$HOME/done"'
    wanted = launch(command=command, packages=(str(wheel),))
    machine = booted(tmp_path / "machine", wanted, environment={"PIP_NO_INDEX": "1"})
    try:
        wait_until(lambda: (machine.folder / "done").exists())
        assert (machine.folder / "out").read_text() == "5\n"
    finally:
        machine.vanish()
