"""Devices: never given away twice, and free again when nobody is left."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpubloom.providers import Devices, ProviderError
from gpubloom.traincard.nvml import choose_visible
from tests.errors import raises
from tests.providers.conftest import machine

OTHER_WORKER = """
import sys
from pathlib import Path
from gpubloom.providers import Devices
devices = Devices(Path(sys.argv[1]), find_gpus=lambda: ("GPU-a", "GPU-b"))
for line in sys.stdin:
    found = devices.reserve(int(line))
    print(",".join(found.devices) if found else "none", flush=True)
"""


def test_two_workers_share_one_machine(home: Path) -> None:
    devices = machine(home)
    command = [sys.executable, "-c", OTHER_WORKER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:

        def other_reserves(gpus: int) -> str:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write(f"{gpus}\n")
            other.stdin.flush()
            return other.stdout.readline().strip()

        cpu = devices.reserve(0)
        assert cpu is not None
        assert cpu.devices == ("cpu",)
        assert other_reserves(0) == "none"
        assert other_reserves(1) == "GPU-a"
        # Asking for two when one is left takes none.
        assert devices.reserve(2) is None
        mine = devices.reserve(1)
        assert mine is not None
        assert mine.devices == ("GPU-b",)
        assert other_reserves(1) == "none"
        cpu.release()
        assert other_reserves(0) == "cpu"
        other.kill()
        other.wait()
    again = devices.reserve(0)
    assert again is not None
    again.release()
    mine.release()


def test_there_is_a_second_slot_beside_the_first_one_and_not_a_third(home: Path) -> None:
    devices = machine(home)
    first, side_slot = devices.reserve(0), devices.reserve(0, side_slot=True)
    assert first is not None
    assert side_slot is not None
    assert (first.devices, side_slot.devices) == (("cpu",), ("cpu-beside",))
    assert side_slot.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert devices.reserve(0) is None
    assert devices.reserve(0, side_slot=True) is None
    first.release()
    assert devices.reserve(0, side_slot=True) is None, "one is not taken for the other"
    side_slot.release()


def test_a_reservation_shows_its_devices_to_cuda_and_hides_all_others(home: Path) -> None:
    devices = machine(home)
    both = devices.reserve(2)
    cpu = devices.reserve(0)
    assert both is not None
    assert cpu is not None
    with both, cpu:
        assert both.environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
        assert cpu.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert both.descriptors == ()


def test_gpus_that_are_not_there_are_refused_with_what_there_is(home: Path) -> None:
    with raises(ProviderError, code="more_gpus_than_machine", match="3 GPUs.*2 GPUs"):
        machine(home).reserve(3)
    with raises(ProviderError, code="more_gpus_than_machine", match="1 GPU"):
        Devices(home, find_gpus=lambda: ()).reserve(1)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-c,GPU-ab", [2, 1]),
        ("1,7,0", [1]),
        ("GPU-a", []),
        ("-1", []),
    ],
)
def test_only_gpus_that_the_worker_may_see_are_given_away(visible: str | None, expected: list[int]) -> None:
    gpus = ("GPU-aa", "GPU-ab", "GPU-c")
    assert choose_visible(gpus, visible) == tuple(gpus[index] for index in expected)
