"""The planner counts what the block executor holds: every buffer of a run, on the device and on the host."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks import store as store_module
from gpubloom.engine.executors.blocks.device import Device
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.model import Model
from gpubloom.plan import BlockPlacement, Hardware, Placement, TrainConfig, predict
from gpubloom.plan.placement import resident, streamed

LAYERS, VOCABULARY = 5, 600
# The planner is asked about a GPU: on a CPU device and host are one memory, though the buffers are the same.
GPU = Hardware.parse("H200, 125 GiB host")
HOST = BlockPlacement(state="host", weights="stream")
LINK = BlockPlacement(state="link", weights="stream")
CAST = BlockPlacement(weights="cast")


def mixed(*layers: BlockPlacement, ends: BlockPlacement | None = None) -> Placement:
    ends = ends or BlockPlacement()
    return Placement(embedding=ends, layers=layers, head=ends, slots=3)


PLACEMENTS = {
    "resident": resident(LAYERS, tied=False),
    "streamed": streamed(LAYERS, tied=False),
    "linked": mixed(HOST, LINK, HOST, LINK, HOST),
    "cast": mixed(CAST, CAST, HOST, HOST, HOST.model_copy(update={"weights": "device"})),
    "kept": mixed(HOST, HOST, LINK, *[HOST.model_copy(update={"weights": "device", "keep": True})] * 2),
    "ends on the host": mixed(*[HOST] * LAYERS, ends=BlockPlacement(state="host")),
}


class Buffers:
    """Bytes of what was asked for and is still held."""

    def __init__(self) -> None:
        self._held: list[weakref.ref[Tensor]] = []

    def note(self, tensor: Tensor) -> Tensor:
        self._held.append(weakref.ref(tensor))
        return tensor

    @property
    def addresses(self) -> set[int]:
        return {tensor.untyped_storage().data_ptr() for held in self._held if (tensor := held()) is not None}

    @property
    def total(self) -> int:
        gc.collect()
        return sum(tensor.nbytes for held in self._held if (tensor := held()) is not None)


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> tuple[Buffers, Buffers]:
    device, host = Buffers(), Buffers()
    empty, pinned, plain = Device.empty, Device.host, host_buffer
    monkeypatch.setattr(Device, "empty", lambda self, *rest: device.note(empty(self, *rest)))
    monkeypatch.setattr(Device, "host", lambda self, *rest: host.note(pinned(self, *rest)))
    monkeypatch.setattr(store_module, "host_buffer", lambda *rest, **more: host.note(plain(*rest, **more)))
    return device, host


def living(known: set[int]) -> dict[int, int]:
    """Bytes of the tensors of this process by their address, without those at known ones."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) is Tensor]
    found = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
    return {address: size for address, size in found.items() if address not in known}


FROZEN = {
    "resident": resident(LAYERS, tied=False),
    "frozen and streamed": mixed(*[BlockPlacement(weights="stream")] * LAYERS),
}
CASES = [
    *((name, "full", precision) for name in PLACEMENTS for precision in ("bf16", "fp32")),
    *((name, method, "bf16") for name in FROZEN for method in ("lora", "qlora")),
]
OPTIMIZERS = [
    *((name, "full", {"name": other}) for name in PLACEMENTS for other in ("muon", "adafactor")),
    *(("frozen and streamed", "lora", {"name": other}) for other in ("muon", "adafactor")),
    *((name, "full", {"state": state}) for name in PLACEMENTS for state in ("bf16", "8bit")),
]


def _model(config: TrainConfig) -> Model:
    """Adapters on random weights, which no run would train, need as much memory as any others."""
    whole = Model.open(config.model_copy(update={"method": "full"}), vocab_size=VOCABULARY)
    return whole if config.method == "full" else whole.with_adapters(config)


@pytest.mark.long
@pytest.mark.parametrize("accumulation", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(("name", "method", "precision"), CASES)
def test_weights_gradients_and_states_are_predicted_within_two_percent(
    buffers: tuple[Buffers, Buffers], name: str, method: str, precision: str, accumulation: int
) -> None:
    assert_planned(buffers, name, method, precision, accumulation, {"name": "adamw"})


@pytest.mark.long
@pytest.mark.parametrize(("name", "method", "optimizer"), OPTIMIZERS)
def test_states_of_other_optimizers_and_formats_are_predicted_as_well(
    buffers: tuple[Buffers, Buffers], name: str, method: str, optimizer: dict[str, str]
) -> None:
    assert_planned(buffers, name, method, "bf16", 1, optimizer)


def assert_planned(
    buffers: tuple[Buffers, Buffers],
    name: str,
    method: str,
    precision: str,
    accumulation: int,
    optimizer: dict[str, str],
) -> None:
    config = TrainConfig.model_validate(
        {
            "model": {
                "hidden_size": 256,
                "heads": 8,
                "kv_heads": 4,
                "layers": LAYERS,
                "tie_embeddings": False,
            },
            "method": method,
            "precision": precision,
            "accumulation": accumulation,
            "batch_size": 2,
            "optimizer": optimizer,
        }
    )
    placement, model = (PLACEMENTS | FROZEN)[name], _model(config)
    before = set(living(set()))
    executor = BlockExecutor(
        model.blocks,
        model.source,
        placement,
        config.optimizer,
        choose_compute("cpu", precision),
        ExecutorOptions(accumulation=accumulation, quantized=method == "qlora"),
    )
    others = living(before | buffers[0].addresses | buffers[1].addresses)
    assert sum(others.values()) < (buffers[0].total + buffers[1].total) / 20, "held beside the buffers"
    tokens = torch.randint(VOCABULARY, (accumulation, 2, 128))
    for _ in range(2):
        executor.forward_backward(Batch(tokens, tokens))
        executor.optimizer_step(1e-3)
    executor.settle()
    planned = predict(config, GPU, placement, shape=model.shape)
    for held, memory in zip(buffers, (planned.gpu, planned.host), strict=True):
        assert memory is not None
        # Host overhead and activations are no buffers of the executor.
        counted = memory.weights + memory.gradients + memory.optimizer
        assert held.total == pytest.approx(counted, rel=0.02), (
            f"{name}: {held.total:,} held, {counted:,} planned"
        )
