"""Compiles a run's programs in another process; training goes on uncompiled until the planned step.

A thread would not do: while torch traces one model, no other may run in the same process. What the other
process makes stays in the compiler's cache on disk, where this one finds it. It opens the model by the run's
config, without weights, and compiles with fake tensors: nothing is computed, so on a GPU it needs no memory
but the driver's own.
"""

import importlib
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.functions import Bound, HeadFunctions, LayerFunctions
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.hardware import use_deterministic_kernels
from gpubloom.engine.model import Model
from gpubloom.engine.models.blocks import BlockModel, Tables
from gpubloom.engine.models.fp8 import use_fp8
from gpubloom.engine.optimizer.device_adamw import UpdateProgram, compile_update
from gpubloom.engine.parallel.rank_env import end_with
from gpubloom.plan import TrainConfig

# Its exit status if the layers themselves are the reason.
_CANNOT_COMPILE = 3
# Twenty times what it usually takes.
_LONGEST_SECONDS = 600.0
# What the step that switches would otherwise import, which takes seconds. Imported after a few steps, when
# the first loss is out and steps are recorded.
_COMPILER_MODULES = (
    "torch._dynamo.convert_frame",
    "torch._functorch.aot_autograd",
    "torch.fx.experimental.proxy_tensor",
    "torch._inductor.compile_fx",
    "torch._inductor.select_algorithm",
    "torch._inductor.runtime.triton_heuristics",
)
_STEPS_BEFORE_IMPORTS = 6
_PROGRAM = "from gpubloom.engine.executors.blocks.background_compile import main; main()"


@dataclass(frozen=True)
class CompilerSetup:
    """What the other process needs to open the model: it does so while this one loads weights."""

    config: TrainConfig
    vocab_size: int
    device: torch.device
    fp8: bool
    threads: int
    compile_threads: int
    parent: int

    def model(self) -> BlockModel:
        blocks = Model.open(self.config, vocab_size=self.vocab_size).blocks
        if self.fp8:
            use_fp8(blocks)
        return blocks


@dataclass(frozen=True)
class _Like:
    """A tensor without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> "_Like":
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def empty(self, device: torch.device) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


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

    def empty(self, device: torch.device) -> Bound:
        trained, frozen = (
            [torch.empty(shape, dtype=self.dtype, device=device) for shape in shapes]
            for shapes in (self.trained, self.frozen)
        )
        return Bound(self.names, trained, frozen)


@dataclass(frozen=True)
class CompileJob:
    """The programs to compile. `tables`: by kind of layer, the inputs of a real step."""

    layers: frozenset[_Block]
    head: _Block
    x_BTD: _Like
    tables: Mapping[str, tuple[_Like, ...]]
    chunks: frozenset[int]
    update: UpdateProgram | None

    @classmethod
    def of(
        cls,
        model: BlockModel,
        layers: Sequence[BlockStore],
        head: BlockStore,
        x_BTD: Tensor,
        tables: Mapping[str, Tables],
        chunk_tokens: int,
        update: UpdateProgram | None,
    ) -> "CompileJob":
        positions = x_BTD.shape[0] * x_BTD.shape[1]
        return cls(
            frozenset(_Block.of(store) for store in layers if store.spec.kind not in model.eager_kinds),
            _Block.of(head),
            _Like.of(x_BTD),
            {kind: tuple(map(_Like.of, each)) for kind, each in tables.items()},
            frozenset({min(chunk_tokens, positions), positions % chunk_tokens} - {0}),
            update,
        )


class BackgroundCompile:
    """The process that compiles, and when the run switches to what it has compiled."""

    def __init__(
        self,
        setup: CompilerSetup,
        first_step: int,
        say: Callable[[str], None],
        on_success: Callable[[], None] = lambda: None,
    ) -> None:
        """`first_step`: the first one that is compiled. `on_success` is called when all is compiled."""
        self._first_step = first_step
        self._say = say
        self._on_success = on_success
        self.is_ordered = False
        self._steps = 0
        self._is_needed = True
        self._importing = threading.Thread(target=self._import_compiler, name="import-compiler")
        self._process = subprocess.Popen(
            # -P: no module of the folder where the run was started.
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send(setup)

    def order(self, job: CompileJob) -> None:
        """What is to be compiled is known once a step has begun."""
        self.is_ordered = True
        self._send(job)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def switches_at(self, step: int) -> bool | None:
        """Whether compiled programs run from this step on; None as long as that is not decided.

        At the planned step, and not at the first one that could: a run switches at the same step whenever it
        is resumed. Waits there for a process that is late. False: nothing can be compiled. If the process
        ended for another reason, this one compiles, and the step waits for that.
        """
        cannot = self._process.poll() == _CANNOT_COMPILE
        if not self.is_ordered or (step < self._first_step and not cannot):
            self._steps += 1
            if self._steps == _STEPS_BEFORE_IMPORTS:
                self._importing.start()
            return None
        if self._process.poll() is None:
            self._say(f"update {step} waits until the layers are compiled")
        said = self._wait()
        if self._importing.is_alive():
            # Two threads that import modules of one package may see each other's unfinished ones.
            self._importing.join()
        if self._process.returncode == _CANNOT_COMPILE:
            self._say(f"the layers are not compiled and run slower: {said}")
            return False
        found = re.search(r"^compiled in ([0-9.]+)$", said, re.MULTILINE)
        if found is None:
            status = self._process.returncode
            self._say(
                f"the process that compiles ended with exit status {status}; update {step} compiles instead"
            )
            return True
        self._on_success()
        self._say(
            f"the layers are compiled from update {step} on, as planned, after {float(found[1]):.0f} s of "
            "compilation in the background; from here on results may differ by rounding"
        )
        return True

    def _import_compiler(self) -> None:
        for name in _COMPILER_MODULES:
            if not self._is_needed:
                return
            # What fails here fails again where it is needed, and is told there.
            with suppress(Exception):
                importlib.import_module(name)

    def _wait(self) -> str:
        """What the process has written when it is over. One that hangs is ended."""
        assert self._process.stdout is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LONGEST_SECONDS)
        self._process.kill()
        with self._process.stdout as pipe:
            said = pipe.read().decode(errors="replace").strip()
        self._process.wait()
        return said

    def close(self) -> None:
        """End the process, when the run ends before it is done."""
        self._is_needed = False
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _send(self, given: object) -> None:
        assert self._process.stdin is not None
        # A process that has ended says why when it is asked.
        with suppress(BrokenPipeError):
            pickle.dump(given, self._process.stdin)
            self._process.stdin.flush()


def main() -> None:
    """The entry point of the process that compiles. Prints how long that took, or why it cannot be done."""
    # Only what the training process writes comes here.
    setup: CompilerSetup = pickle.load(sys.stdin.buffer)  # noqa: S301
    end_with(setup.parent)
    if setup.config.deterministic:
        use_deterministic_kernels()
    if setup.device.type == "cuda":
        # Processes that train together have a GPU each.
        torch.cuda.set_device(setup.device)
    import torch._inductor.config as compiler

    compiler.compile_threads = setup.compile_threads
    # Programs are made for a number of threads.
    torch.set_num_threads(setup.threads)
    model = setup.model()
    try:
        job: CompileJob = pickle.load(sys.stdin.buffer)  # noqa: S301
    except EOFError:
        sys.exit("the run ended before its first step")
    began = time.perf_counter()
    try:
        _compile(job, model, setup.device)
    except Exception as problem:  # noqa: BLE001 - training continues uncompiled and logs the reason
        said = str(problem).strip().splitlines() or [type(problem).__name__]
        sys.stdout.write(said[0])
        sys.exit(_CANNOT_COMPILE)
    sys.stdout.write(f"\ncompiled in {time.perf_counter() - began:.1f}\n")


def _compile(job: CompileJob, model: BlockModel, device: torch.device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), _nothing_runs() as compiled:
        x_BTD = job.x_BTD.empty(device)
        for block in sorted(job.layers, key=repr):
            functions = LayerFunctions(model, block.kind, block.names, compiled=True)
            bound, tables = block.empty(device), tuple(each.empty(device) for each in job.tables[block.kind])
            if block.keep:
                # Brings its backward pass along.
                compiled(functions.forward_kept, bound, x_BTD, tables)
            else:
                compiled(functions.forward, bound, x_BTD, tables)
                compiled(functions.backward, bound, x_BTD, tables, torch.empty_like(x_BTD))
        head = HeadFunctions(model, job.head.names, compiled=True)
        for positions in sorted(job.chunks):
            x_ND = x_BTD.flatten(0, 1)[:positions]
            targets_N = torch.empty(positions, dtype=torch.int64, device=device)
            compiled(head.loss, job.head.empty(device), x_ND, targets_N, torch.empty((), device=device))
        if job.update is not None:
            compiled(compile_update, job.update, device)


class _Compiled(Exception):
    """A program is compiled and would now run."""


@contextmanager
def _nothing_runs() -> Iterator[Callable[..., None]]:
    """While this is open, programs are compiled but not run: the function yielded calls another for that."""
    from torch._functorch import config as tracing
    from torch._inductor.output_code import CompiledFxGraph

    reached: list[bool] = []

    def stop(graph: Any, inputs: Sequence[Any]) -> Any:
        reached.append(True)
        raise _Compiled

    def call(function: Callable[..., Any], *arguments: Any) -> None:
        reached.clear()
        try:
            function(*arguments)
        except Exception:
            # torch may raise something else on the way out.
            if not reached:
                raise

    run = CompiledFxGraph.__call__
    CompiledFxGraph.__call__ = stop  # type: ignore[method-assign, assignment]
    try:
        # A backward pass would otherwise be compiled when it is first run.
        with tracing.patch(force_non_lazy_backward_lowering=True):
            yield call
    finally:
        CompiledFxGraph.__call__ = run  # type: ignore[method-assign]
