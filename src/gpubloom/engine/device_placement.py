"""From a config and a model to an executor on this machine: device, precision, plan, placement.

The plan is made again where the run happens, for the machine that is there; what was planned before is a
prediction.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gpubloom.engine.calibrate import calibrated, kept
from gpubloom.engine.compile_cache import note_kept_programs, use_compile_cache
from gpubloom.engine.executors import Executor
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks.background_compile import BackgroundCompile, CompilerSetup
from gpubloom.engine.hardware import Compute, choose_compute, use_deterministic_kernels, uses_gpu, visible
from gpubloom.engine.host_memory import PinningRefused, resident_bytes
from gpubloom.engine.model import Model
from gpubloom.engine.models.fp8 import use_fp8
from gpubloom.engine.models.packed_documents import why_not_boundaries
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.engine.run_plan import plan_run, programs_of
from gpubloom.errors import InputError, code_of
from gpubloom.plan import (
    DoesNotFit,
    Hardware,
    Plan,
    TrainConfig,
    choose_precision,
    detect_hardware,
    plan,
    share_of,
)

_COMPILE_PROCESSES = 4
_METHODS = {"lora": "LoRA adapters", "qlora": "LoRA adapters on 4-bit weights (NF4)"}


@dataclass(frozen=True)
class OnDevices:
    """An executor, and why it is the way it is."""

    executor: Executor
    compute: Compute
    plan: Plan
    # 0: none is compiled.
    first_compiled_step: int
    method: str
    peak_flops: float | None
    flops_per_token: float
    notes: tuple[str, ...]

    @property
    def compiled(self) -> bool:
        """Whether every step is compiled."""
        return self.first_compiled_step == 1

    def metrics(self, tokens_per_second: float) -> dict[str, float]:
        """How well the device is used, and memory beside what was planned; nothing on a CPU."""
        if self.compute.device.type != "cuda":
            return {}
        flops = self.flops_per_token * tokens_per_second
        found = {
            "engine/tflops": flops / 1e12,
            "engine/gpu_reserved_bytes": float(torch.cuda.memory_reserved(self.compute.device)),
            "engine/host_bytes": float(resident_bytes()),
        }
        if self.peak_flops is not None:
            found["engine/mfu"] = flops / self.peak_flops
        return found

    def facts(self) -> dict[str, object]:
        """What a person should know about where this run happens."""
        facts: dict[str, object] = {
            "device": str(self.compute.device),
            "executor": self.plan.executor,
            "precision": self.compute.reason,
            "placement": self.plan.placement_text,
            "compiled": self.compiled,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "optimizations": "; ".join(self.optimizations()),
            "host_optimizer": self.executor.optimizer_description,
            "torch_threads": torch.get_num_threads(),
            "planned_step_seconds": self.plan.step_seconds,
        }
        if self.plan.gpu_reserved_bytes is not None and self.plan.host is not None:
            facts["planned_gpu_bytes"] = self.plan.gpu_reserved_bytes
            facts["planned_host_bytes"] = self.plan.host.total
        return facts

    def optimizations(self) -> list[str]:
        """What makes this run faster or smaller than the plain way."""
        found = [] if self.method == "full" else [_METHODS[self.method]]
        if self.compute.precision != "fp32":
            found.append(f"{self.compute.precision} computation")
        found.append("chunked loss")
        if self.plan.executor == "sharded":
            found.append("weights, gradients and optimizer state sharded across processes")
        if self.first_compiled_step:
            later = "" if self.compiled else f" from step {self.first_compiled_step} on"
            found.append(f"compiled layers{later}")
        if self.plan.placement is not None and self.plan.placement.cuda_graph:
            found.append("steps recorded as a CUDA graph")
        layers = () if self.plan.placement is None else self.plan.placement.layers
        again = sum(not layer.keep for layer in layers)
        if again:
            found.append(f"activations of {again} of {len(layers)} layers recomputed")
        if streamed := sum(layer.weights == "stream" for layer in layers):
            found.append(f"weights of {streamed} of {len(layers)} layers streamed from host memory")
        if any(layer.state != "device" for layer in layers):
            found.append("optimizer state in host memory")
        # The host's kernel is one pass over memory, as is a compiled one; plain torch makes several.
        in_host = self.compute.device.type == "cpu" or any(layer.state == "host" for layer in layers)
        if self.executor.optimizer_description.startswith("C,") if in_host else self.compiled:
            found.append("fused optimizer step")
        return found


def move_to_devices(
    config: TrainConfig,
    model: Model,
    steps: int | None = None,
    group: Group = ALONE,
    say: Callable[[str], None] = lambda sentence: None,
    run_dir: Path | None = None,
) -> OnDevices:
    """Plans the run for this machine and brings the model's first weights where the plan wants them.

    `steps` is the length of the run, if it is known; `group` are the processes that train together.
    `say` takes what the executor has to say later on, for the run's log. In `run_dir` is the plan.json that
    says from which step on the layers are compiled; where it does not, it will.
    """
    if config.deterministic:
        use_deterministic_kernels()
    compute = choose_compute(_own_device(config, group), config.precision)
    hardware = visible(detect_hardware())
    if compute.device.type == "cpu" and config.precision == "auto":
        # All processes compute alike, whatever CPUs they have.
        precision, reason = group.agree(choose_precision("auto", None, hardware, model.shape))
        compute = replace(compute, precision=precision, reason=reason)
        config = config.model_copy(update={"precision": precision})
    threads = torch.get_num_threads()
    if compute.device.type == "cuda":
        # One core launches kernels; all others may update weights.
        threads = max(1, len(os.sched_getaffinity(0)) // group.local_size - 1)
        _prepare_gpu(config, compute.device)
        hardware = _with_speeds(config, hardware, model, compute.device, threads)
    can_compile, notes = _compiles(config, compute)
    must_compile = can_compile and config.compile == "on"
    hardware = share_of(hardware, group.local_size)
    config, found, first_compiled = plan_run(
        config,
        hardware,
        model,
        steps=steps,
        group=group,
        run_dir=run_dir,
        on_gpu=compute.device.type == "cuda",
        can_compile=can_compile,
    )
    assert found.placement is not None
    if must_compile and first_compiled == 0:
        notes = (*notes, "the layers are not compiled: the run ends before another process could do so")
    options = ExecutorOptions(
        accumulation=config.accumulation,
        compiled=first_compiled == 1,
        quantized=config.method == "qlora",
        threads=threads,
        group=group,
        say=say,
    )
    return OnDevices(
        executor=_load(config, model, found, compute, options, first_compiled),
        compute=compute,
        plan=found,
        first_compiled_step=first_compiled,
        method=config.method,
        peak_flops=_peak_flops(hardware, compute),
        # Forward and backward; frozen weights need no gradient of their own.
        flops_per_token=(6 if config.method == "full" else 4) * model.shape.parameters,
        notes=(*notes, *_slow_packing(config, compute.device)),
    )


def _with_speeds(
    config: TrainConfig, hardware: Hardware, model: Model, device: torch.device, threads: int
) -> Hardware:
    """The machine with the speeds that its plan depends on. Measuring takes seconds on a new machine."""
    found = kept(hardware, device, threads=threads)
    if found is None and _is_whole_on_gpu(config, hardware, model):
        return hardware
    return found or calibrated(hardware, device, threads=threads)


def _is_whole_on_gpu(config: TrainConfig, hardware: Hardware, model: Model) -> bool:
    """Such a model is placed alike at any speed of the machine."""
    try:
        placement = plan(config, hardware, shape=model.shape).placement
    except DoesNotFit:
        return False
    assert placement is not None
    return all((block.state, block.weights) == ("device", "device") for block in placement.blocks())


def _own_device(config: TrainConfig, group: Group) -> str:
    """Each process has a GPU of its own, by its number on this machine."""
    if group.size == 1 or not uses_gpu(config.device):
        return config.device
    return f"cuda:{group.local_rank}"


def _load(
    config: TrainConfig,
    model: Model,
    found: Plan,
    compute: Compute,
    options: ExecutorOptions,
    first_compiled: int,
) -> Executor:
    assert found.placement is not None
    if compute.precision == "fp8":
        use_fp8(model.blocks)
    given = (model.blocks, model.source, found.placement, config.optimizer, compute, options)
    if found.executor == "sharded":
        # Loaded here: it brings torch's sharding, which a run on one device never pays for.
        from gpubloom.engine.executors.sharded import ShardedExecutor

        with _refused_in_a_sentence(found):
            return ShardedExecutor(*given)
    # Before the weights are loaded: the other process opens the model meanwhile.
    compiling = None
    if first_compiled > 1:
        programs = programs_of(config, model, found)
        setup = _compiler_setup(config, model, compute)
        compiling = BackgroundCompile(
            setup, first_compiled, options.say, on_success=lambda: note_kept_programs(programs)
        )
    with ExitStack() as on_failure, _refused_in_a_sentence(found):
        if compiling is not None:
            on_failure.callback(compiling.close)
        executor = BlockExecutor(*given, compiling)
        on_failure.pop_all()
    return executor


@contextmanager
def _refused_in_a_sentence(found: Plan) -> Iterator[None]:
    """Memory that turns out to be missing is the person's to find, not a bug."""
    try:
        yield
    except PinningRefused as problem:
        raise InputError(code_of(problem), str(problem)) from problem
    except torch.OutOfMemoryError as problem:
        planned = (found.gpu_reserved_bytes or 0) / 1e9
        raise InputError(
            "gpu_out_of_memory",
            f"The GPU ran out of memory while loading the model. The run needs {planned:.1f} GB by its plan. "
            "Another process may use GPU memory: stop that process, or set memory.gpu_budget_gb to the "
            "free GPU memory.",
        ) from problem


def _prepare_gpu(config: TrainConfig, device: torch.device) -> None:
    torch.cuda.set_device(device)
    # Blocks of memory that can grow do not fragment: what is reserved stays close to what is used.
    with warnings.catch_warnings():
        # Newer versions of torch warn that the call will move; the old name works in all that we support.
        warnings.simplefilter("ignore")
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    if config.memory.gpu_budget_gb is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, config.memory.gpu_budget_gb * 1e9 / total), device
        )


def _compiler_setup(config: TrainConfig, model: Model, compute: Compute) -> CompilerSetup:
    import torch._inductor.config as compiler

    return CompilerSetup(
        config,
        model.shape.vocab_size,
        compute.device,
        compute.precision == "fp8",
        torch.get_num_threads(),
        compiler.compile_threads or 1,
        os.getpid(),
    )


def _compiles(config: TrainConfig, compute: Compute) -> tuple[bool, tuple[str, ...]]:
    if config.compile == "off" or (config.compile == "auto" and compute.device.type == "cpu"):
        return False, ()
    if compute.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return False, (
            "the layers are not compiled and run slower, because the package triton is not installed",
        )
    use_compile_cache(compute.device)
    import torch._inductor.config as compiler

    # Each is a process with torch in it; one per core would take memory that the model needs.
    compiler.compile_threads = min(_COMPILE_PROCESSES, compiler.compile_threads or 1)
    return True, ()


def _slow_packing(config: TrainConfig, device: torch.device) -> tuple[str, ...]:
    """Why attention over packed rows is slower than it could be on this GPU, if it is."""
    packs = config.data.kind == "examples" and config.data.packing
    if device.type != "cuda" or not packs or (reason := why_not_boundaries(device)) is None:
        return ()
    return (f"attention over packed examples uses masks and runs slower: {reason}",)


def _peak_flops(hardware: Hardware, compute: Compute) -> float | None:
    if compute.device.type != "cuda" or not hardware.gpus:
        return None
    return hardware.gpus[compute.device.index or 0].flops
