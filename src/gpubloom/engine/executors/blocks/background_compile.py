"""Compiles layers and head in another process; training goes on uncompiled until the planned step.

A thread would not do: while torch traces one model, no other may run in the same process. What the other
process makes stays in the compiler's cache on disk, where this one finds it at once. It computes with zeros
in the shapes of a real step and never sees a weight.
"""

import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.functions import Bound, HeadFunctions, LayerFunctions
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.models.blocks import BlockModel, Tables

_PROGRAM = "from gpubloom.engine.executors.blocks.background_compile import main; main()"


@dataclass(frozen=True)
class _Block:
    """What a program of a block depends on."""

    kind: str
    keep: bool
    names: tuple[str, ...]
    trained: tuple[tuple[int, ...], ...]
    frozen: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, store: BlockStore) -> "_Block":
        trained = tuple(tensor.shape for tensor in store.trained.tensors)
        frozen = tuple(tensor.shape for tensor in store.frozen.tensors)
        return cls(store.spec.kind, store.placement.keep, store.names, trained, frozen, store.dtype)

    def zeros(self) -> Bound:
        trained, frozen = (
            [torch.zeros(shape, dtype=self.dtype) for shape in shapes]
            for shapes in (self.trained, self.frozen)
        )
        return Bound(self.names, trained, frozen)


@dataclass(frozen=True)
class CompileJob:
    """The programs to compile. `tables`: by kind of layer, the inputs of a real step."""

    model: BlockModel
    layers: frozenset[_Block]
    head: _Block
    x_BTD: Tensor
    tables: Mapping[str, Tables]
    chunks: frozenset[int]
    threads: int

    @classmethod
    def of(
        cls,
        model: BlockModel,
        layers: Sequence[BlockStore],
        head: BlockStore,
        x_BTD: Tensor,
        tables: Mapping[str, Tables],
        chunk_tokens: int,
    ) -> "CompileJob":
        positions = x_BTD.shape[0] * x_BTD.shape[1]
        return cls(
            model,
            frozenset(_Block.of(store) for store in layers if store.spec.kind not in model.eager_kinds),
            _Block.of(head),
            torch.zeros_like(x_BTD),
            tables,
            frozenset({min(chunk_tokens, positions), positions % chunk_tokens} - {0}),
            torch.get_num_threads(),
        )


class BackgroundCompile:
    """A process that compiles the layers while training runs uncompiled."""

    def __init__(self, order: CompileJob) -> None:
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pickle.dump(order, pipe)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def has_failed(self) -> bool:
        return self.is_over and self._process.returncode != 0

    def wait(self) -> float | str:
        """Wait for the process. Returns the seconds that it took, or why nothing was compiled."""
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            said = pipe.read().decode(errors="replace").strip()
        if self._process.wait() == 0:
            return time.perf_counter() - self._started
        return said or f"the compiler process ended with exit status {self._process.returncode}"

    def close(self) -> None:
        """End the process that compiles, when the run ends before it is done."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    """The entry point of the process that compiles."""
    # Only what the training process writes comes here.
    order = pickle.load(sys.stdin.buffer)  # noqa: S301
    # Programs are made for a number of threads.
    torch.set_num_threads(order.threads)
    try:
        _compile(order)
    except Exception as problem:  # noqa: BLE001 - training continues uncompiled and logs the reason
        said = str(problem).strip().splitlines() or [type(problem).__name__]
        sys.stdout.write(said[0])
        sys.exit(1)


def _compile(order: CompileJob) -> None:
    for block in order.layers:
        functions = LayerFunctions(order.model, block.kind, block.names, compiled=True)
        bound, tables = block.zeros(), order.tables[block.kind]
        if block.keep:
            y_BTD, kept = functions.forward_kept(bound, order.x_BTD, tables)
            kept.backward(torch.zeros_like(y_BTD))
        else:
            y_BTD = functions.forward(bound, order.x_BTD, tables)
            functions.backward(bound, order.x_BTD, tables, torch.zeros_like(y_BTD))
    head = HeadFunctions(order.model, order.head.names, compiled=True)
    for positions in order.chunks:
        x_ND = order.x_BTD.flatten(0, 1)[:positions]
        targets_N = torch.zeros(positions, dtype=torch.int64)
        head.loss(order.head.zeros(), x_ND, targets_N, torch.ones(()))
