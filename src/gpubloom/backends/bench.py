"""Measures the engine beside PEFT on this machine: both in one process, a round each in turns.

    python -m gpubloom.backends.bench '{"shape": "0.5b", "method": "lora"}'

Prints a `Speedup` as JSON. Weights are random in a known shape; both sides train the same rows in the same
precision with AdamW and clipped gradients. The baseline is how most people train: the model of transformers
with gradient checkpointing, with adapters of PEFT for method lora, under autocast, with a fused AdamW. On a
GPU the engine may use half of the memory, because both models are there at once; a run of its own may use
all of it, and is not slower for it.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast

import torch
import transformers

import gpubloom
from gpubloom.backends.loading import adapters_of
from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import OnDevices, move_to_devices
from gpubloom.engine.executors import KeepsBlocks
from gpubloom.engine.hardware import Compute, uses_gpu, visible
from gpubloom.engine.model import Model, open_blocks
from gpubloom.engine.models.weight_sources import RandomWeights
from gpubloom.errors import InputError, exit_with
from gpubloom.plan import TrainConfig, detect_hardware, named_config
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.speedups import Measured, Speedup, device_name

# Small enough for a test, and for a first look at a machine.
_TINY = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 384,
    "vocab_size": 1_024,
    "max_position_embeddings": 1_024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_LEARNING_RATE = 1e-5
_CLIP_NORM = 1.0


@dataclass(frozen=True)
class Options:
    """What is measured. The first steps of each side warm up (and compile); they do not count."""

    shape: str
    method: Measured = "lora"
    batch_size: int = 1
    context_length: int = 256
    rounds: int = 5
    steps: int = 4
    warm_up: int = 2
    device: str = "auto"


Step = Callable[[int], None]


def measure(options: Options) -> Speedup:
    """Both sides in turns; who begins a round changes, so that a machine that warms up favours nobody."""
    settings = dict(_TINY) if options.shape == "tiny" else named_config(options.shape)
    config = _config(options)
    torch.manual_seed(0)
    on_devices, engine, wait = _engine(config, settings, options)
    baseline = _baseline(config, settings, options, on_devices.compute)
    device = on_devices.compute.device
    for step in (engine, baseline):
        _timed(step, options.warm_up, device, wait)
    pairs = []
    for number in range(options.rounds):
        order = [(0, engine), (1, baseline)]
        seconds = [0.0, 0.0]
        for side, step in order if number % 2 == 0 else reversed(order):
            seconds[side] = _timed(step, options.steps, device, wait)
        pairs.append(seconds)
    on_devices.executor.close()
    ratios = [theirs / ours for ours, theirs in pairs]
    hardware = visible(detect_hardware())
    return Speedup(
        machine=hardware.name,
        device=device_name(hardware, on_gpu=device.type == "cuda"),
        model=options.shape,
        parameters=on_devices.plan.parameters,
        method=options.method,
        precision=on_devices.compute.precision,
        batch_size=options.batch_size,
        context_length=options.context_length,
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        rounds=options.rounds,
        step_seconds=statistics.median(ours for ours, _ in pairs),
        baseline_step_seconds=statistics.median(theirs for _, theirs in pairs),
        versions={
            "gpubloom": gpubloom.__version__,
            **{name: version(name) for name in ("torch", "transformers", "peft")},
        },
        measured_at=datetime.now(UTC),
    )


def _timed(step: Step, steps: int, device: torch.device, wait: Callable[[], None]) -> float:
    """Seconds a step; updates that are still on their way count to whoever ordered them."""
    if device.type == "cuda":
        # What the other side has cached is not this side's to miss.
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(steps):
        step(number)
    wait()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def _config(options: Options) -> TrainConfig:
    memory = {}
    if uses_gpu(options.device):
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        memory = {"gpu_budget_gb": total / 2e9}
    return TrainConfig.model_validate(
        {
            "batch_size": options.batch_size,
            "method": options.method,
            "device": options.device,
            "memory": memory,
            # Stands for the rest of the model; its shape is given.
            "model": {"preset": "tiny", "context_length": options.context_length},
            "optimizer": {"clip_norm": _CLIP_NORM},
        }
    )


def _rows(options: Options, vocabulary: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    shape = (options.batch_size, options.context_length + 1)
    return torch.randint(0, vocabulary, shape, generator=generator)


def _engine(
    config: TrainConfig, settings: dict[str, Any], options: Options
) -> tuple[OnDevices, Step, Callable[[], None]]:
    blocks = open_blocks(settings)
    model = Model(blocks, RandomWeights(blocks, 0), decoder_shape(settings), blocks.settings)
    if options.method != "full":
        model = model.with_adapters(config)
    on_devices = move_to_devices(config, model)
    executor = cast(KeepsBlocks, on_devices.executor)
    if on_devices.compute.device.type == "cuda":
        # The budget was the engine's; the baseline has the rest.
        torch.cuda.set_per_process_memory_fraction(1.0, on_devices.compute.device)

    def step(number: int) -> None:
        rows = _rows(options, settings["vocab_size"], number)
        batch = Batch(rows[None, :, :-1].contiguous(), rows[None, :, 1:].contiguous())
        float(executor.forward_backward(batch))
        executor.optimizer_step(_LEARNING_RATE)

    return on_devices, step, executor.settle


def _baseline(config: TrainConfig, settings: dict[str, Any], options: Options, compute: Compute) -> Step:
    from peft import get_peft_model

    described = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    dtype = torch.float32 if options.method == "full" else compute.dtype
    with compute.device:
        make: Any = transformers.AutoModelForCausalLM.from_config
        model = make(described, dtype=dtype)
    if options.method != "full":
        model = get_peft_model(model, adapters_of(config))
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=_LEARNING_RATE, fused=True)
    mixed = compute.precision != "fp32"

    def step(number: int) -> None:
        rows = _rows(options, settings["vocab_size"], number)[:, :-1].to(compute.device)
        with torch.autocast(compute.device.type, dtype=compute.dtype, enabled=mixed):
            loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, _CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        float(loss.detach())

    return step


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    try:
        found = measure(options)
    except torch.OutOfMemoryError:
        exit_with(
            InputError(
                "gpu_out_of_memory",
                f"The GPU has no room for two models of shape {options.shape}: use a smaller --shape, "
                "--batch-size or --length.",
            )
        )
    except ValueError as problem:
        exit_with(problem)
    else:
        sys.stdout.write(f"{found.model_dump_json()}\n")


if __name__ == "__main__":
    main()
