"""A model that is divided among processes trains as the whole one does on a single device."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.executors.sharded import ShardedExecutor
from tests.engine.placements.training import Trained
from tests.engine.sharded.cases import CASES, QUICK, executor_of, train
from tests.engine.sharded.members import run_members

# One worker starts the two processes for all.
pytestmark = pytest.mark.xdist_group("two-processes")


def as_one_device_does(name: str) -> dict[str, Any]:
    trained = CASES[name]()
    return train(executor_of(BlockExecutor, trained), trained)


def assert_same(found: dict[str, Any], expected: dict[str, Any], name: str) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5), name
    # Every step is clipped: a norm of parts only would show in the losses as well.
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-5), name
    assert found["evaluated"] == pytest.approx(expected["evaluated"], rel=1e-5), name
    assert found["correct"] == expected["correct"], name
    assert found["logits"] == pytest.approx(expected["logits"], rel=1e-4, abs=1e-5), name


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_one_process_trains_as_the_block_executor_does(name: str) -> None:
    trained = CASES[name]()
    executor = executor_of(ShardedExecutor, trained)
    found = train(executor, trained)
    executor.close()
    assert_same(found, as_one_device_does(name), name)
    assert not dist.is_initialized()


def assert_all_same(folder: Path, size: int, names: Iterable[str]) -> None:
    answers = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    for name in names:
        expected = as_one_device_does(name)
        for answer in answers:
            assert_same(answer[name], expected, name)


def test_two_processes_train_as_one_does(two_processes: Path) -> None:
    assert_all_same(two_processes, 2, QUICK)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_train_every_kind_of_model_as_one_does(size: int, tmp_path: Path) -> None:
    run_members(size, ["-m", "tests.engine.sharded.member", str(tmp_path), *CASES])
    assert_all_same(tmp_path, size, CASES)


def test_every_process_holds_its_part_of_masters_and_moments_only() -> None:
    executor = executor_of(ShardedExecutor, CASES["own"]())
    elements = sum(tensor.spec.length for tensor in executor.tensors)
    assert sum(tensor.master.numel() for tensor in executor.tensors) == elements
    assert all(
        tensor.first.shape == tensor.second.shape == tensor.master.shape for tensor in executor.tensors
    )
    executor.close()


def test_bf16_computes_with_rounded_weights_and_keeps_masters_in_fp32() -> None:
    trained = Trained.own(tied=False, precision="bf16")
    executor = executor_of(ShardedExecutor, trained)
    found = train(executor, trained)
    assert all(str(tensor.master.dtype) == "torch.float32" for tensor in executor.tensors)
    executor.close()
    expected = train(executor_of(BlockExecutor, trained), trained)
    assert found["losses"] == pytest.approx(expected["losses"], rel=2e-3)
    assert found["losses"] != as_one_device_does("own")["losses"]
