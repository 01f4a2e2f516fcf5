"""Host buffers: their size, their life, and how they are pinned. CUDA is a fake unless there is a GPU."""

import ctypes
import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gpubloom.engine import host_memory
from gpubloom.engine.host_memory import PinningRefused, host_buffer, total_host_bytes
from tests.errors import raises

MIB = 1 << 20
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def _nothing_else_is_alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(host_memory, "_alive", {})
    yield
    gc.collect()
    assert total_host_bytes() == 0


def memory_mib(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) // 1024


def is_mapped(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(edge, 16) for edge in line.split()[0].split("-"))
        if begin <= address < end:
            return True
    return False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8])
def test_a_buffer_is_flat_zero_and_writable(dtype: torch.dtype) -> None:
    buffer = host_buffer(100_003, dtype, pinned=False)
    assert buffer.shape == (100_003,)
    assert buffer.dtype == dtype
    assert not buffer.any()
    buffer.fill_(3)
    assert (buffer == 3).all()


def test_a_buffer_takes_exactly_its_pages_and_no_memory_before_it_is_touched() -> None:
    before, resident = memory_mib("VmSize"), memory_mib("VmRSS")
    buffer = host_buffer(525 * MIB // 2, torch.bfloat16, pinned=False)
    # A power of two would be 1024 MiB.
    assert 525 <= memory_mib("VmSize") - before <= 528
    assert memory_mib("VmRSS") - resident < 16
    assert total_host_bytes() == 525 * MIB
    del buffer
    assert memory_mib("VmSize") - before < 4
    assert total_host_bytes() == 0


def test_sizes_are_rounded_up_to_a_page_only() -> None:
    buffer = host_buffer(mmap.PAGESIZE + 1, torch.uint8, pinned=False)
    assert total_host_bytes() == 2 * mmap.PAGESIZE
    assert buffer.data_ptr() % mmap.PAGESIZE == 0


@pytest.mark.long
def test_memory_lives_as_long_as_its_last_view() -> None:
    buffer = host_buffer(MIB, torch.float32, pinned=False)
    view, address = buffer[1000:2000].view(10, 100), buffer.data_ptr()
    view.fill_(7)
    del buffer
    gc.collect()
    assert (view == 7).all()
    assert total_host_bytes() == 4 * MIB
    del view
    assert total_host_bytes() == 0
    assert not is_mapped(address)


def test_an_empty_buffer_takes_nothing() -> None:
    assert host_buffer(0, torch.float32, pinned=False).shape == (0,)
    assert total_host_bytes() == 0


def test_a_negative_length_is_refused() -> None:
    with raises(ValueError, code="invalid_argument"):
        host_buffer(-1, torch.float32, pinned=False)


def test_more_memory_than_there_can_be_is_refused_with_its_size() -> None:
    with pytest.raises(MemoryError, match=r"1,000,000,000,000,\d+ bytes"):
        host_buffer(10**15, torch.uint8, pinned=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_pinned_memory_without_a_gpu_is_refused() -> None:
    with raises(ValueError, code="device_not_found"):
        host_buffer(10, torch.float32, pinned=True)


class FakeCuda:
    """What torch.cuda.cudart() offers, as the CUDA manual describes it."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.asked: list[int] = []
        self.registered: dict[int, int] = {}
        self.mapped_when_unregistered: list[bool] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.asked.append(address)
        if self.status == 0:
            assert address not in self.registered
            self.registered[address] = size
        return self.status

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        self.mapped_when_unregistered.append(is_mapped(address))
        return 0

    def cudaGetErrorString(self, status: int) -> str:
        return {2: "out of memory"}[status]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(host_memory, "_cudart", lambda: fake)
    monkeypatch.setattr(host_memory, "_take_error", lambda: None)
    return fake


def test_all_of_a_pinned_buffer_is_registered_until_its_last_view_is_gone(cuda: FakeCuda) -> None:
    buffer = host_buffer(3 * MIB + 1, torch.bfloat16, pinned=True)
    assert cuda.registered == {buffer.data_ptr(): 6 * MIB + mmap.PAGESIZE}
    view = buffer[5:]
    del buffer
    assert len(cuda.registered) == 1
    del view
    assert cuda.registered == {}
    assert cuda.mapped_when_unregistered == [True], "unmapped while CUDA still had it"


def test_all_pages_of_a_pinned_buffer_are_in_memory_when_it_is_registered(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def register(address: int, size: int, flags: int) -> int:
        pages = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
        found.append(sum(page & 1 for page in pages) * mmap.PAGESIZE)
        return 0

    monkeypatch.setattr(cuda, "cudaHostRegister", register)
    monkeypatch.setattr(cuda, "cudaHostUnregister", lambda address: 0)
    # More than one piece of what is touched at once.
    assert not host_buffer(70 * MIB, torch.uint8, pinned=True).any()
    assert found == [70 * MIB]


def test_a_plain_buffer_is_not_registered(cuda: FakeCuda) -> None:
    host_buffer(10, torch.float32, pinned=False)
    assert cuda.mapped_when_unregistered == []


@pytest.mark.long
def test_a_refusal_to_pin_names_the_bytes_and_the_limit_and_keeps_nothing(cuda: FakeCuda) -> None:
    cuda.status = 2
    with raises(PinningRefused, code="pinning_refused", match="67,108,864 bytes.*ulimit -l"):
        host_buffer(16 * MIB, torch.float32, pinned=True)
    gc.collect()
    assert total_host_bytes() == 0
    assert not is_mapped(cuda.asked[0])


def test_a_forked_child_does_not_unregister_its_parents_memory(cuda: FakeCuda) -> None:
    buffer = host_buffer(MIB, torch.float32, pinned=True)
    address = buffer.data_ptr()
    host_memory._forget(address, True, os.getpid() + 1)
    assert address in cuda.registered
    del buffer


@pytest.mark.long
def test_buffers_that_live_at_exit_disturb_nothing() -> None:
    program = (
        "import torch; from gpubloom.engine.host_memory import host_buffer;"
        "kept = host_buffer(1000, torch.float32, pinned=False).fill_(1)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, check=True)
    assert done.stderr == b""


@needs_gpu
def test_a_gpu_copies_to_and_from_a_pinned_buffer() -> None:
    buffer = host_buffer(MIB, torch.float32, pinned=True)
    assert buffer.is_pinned()
    buffer.copy_(torch.arange(MIB))
    there = buffer.to("cuda", non_blocking=True) * 2
    buffer.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(buffer, torch.arange(MIB) * 2.0)


@needs_gpu
def test_a_refusal_by_the_gpu_breaks_nothing_after_it() -> None:
    buffer = host_buffer(MIB, torch.float32, pinned=True)
    with raises(PinningRefused, code="pinning_refused"):
        host_memory._register(buffer.data_ptr(), MIB)
    assert (torch.zeros(8, device="cuda") + 1).sum() == 8
