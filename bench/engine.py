"""The engine on a GPU: sizes × batches × {stream, auto, torch}, predicted beside measured.

    python bench/engine.py                              six sizes and batches in all modes
    python bench/engine.py 7b:64:stream 1.5b:8:torch    some of them: SIZE:ROWS:MODE
    python bench/engine.py 14b:8:auto --fixed-batch     the same batch again and again: the loss must fall
    python bench/engine.py 26b:8:auto --state 8bit      any size, AdamW's moments in 8 bits
    python bench/engine.py 17.5b:8:auto --gradients twice
    python bench/engine.py 7b:64:auto --precision fp8
    python bench/engine.py 32b:1:auto --method qlora --gpu-budget 12
    python bench/engine.py 1.5b:1:stream --length 131072 --gpu-budget 24
    python bench/engine.py 7b:64:auto --profile         and the kernels of a step

Every row runs in a process of its own, with random weights in a Qwen2.5 shape, and prints one JSON line.
TFLOP/s are 6 · parameters · tokens per second. `torch` is the model of transformers, all on the GPU, with
activation checkpointing and fused AdamW on FP32 weights under bf16 autocast.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernels import profiled

ROWS = [
    f"{size}:{rows}:{mode}"
    for size, rows in (("1.5b", 8), ("1.5b", 64), ("3b", 8), ("3b", 32), ("7b", 8), ("7b", 64))
    for mode in ("stream", "auto", "torch")
]
WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="SIZE:ROWS:MODE")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=int, default=1_024)
    parser.add_argument("--method", default="full", choices=["full", "lora", "qlora"])
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "muon", "adafactor"])
    parser.add_argument("--state", default="fp32", choices=["fp32", "bf16", "8bit"])
    parser.add_argument("--precision", default="auto", choices=["auto", "bf16", "fp8"])
    parser.add_argument("--gradients", default="once", choices=["once", "twice"])
    parser.add_argument("--gpu-budget", type=float, help="GB")
    parser.add_argument("--fixed-batch", action="store_true")
    parser.add_argument("--trace", type=Path, help="folder for a timeline of two steps, as JSON")
    parser.add_argument("--profile", action="store_true", help="name the kernels that took longest")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--here", action="store_true", help="all rows in one process: quicker to start")
    options = parser.parse_args()
    if options.here:
        for row in options.rows:
            print(json.dumps(measure(row, options)), flush=True)
        return
    rest = [argument for argument in sys.argv[1:] if argument not in options.rows]
    for row in options.rows:
        command = [sys.executable, __file__, row, *rest, "--here"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            print(json.dumps({"row": row, "failed": f"no result in {options.timeout:.0f} s"}), flush=True)
            continue
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        said = done.stderr.strip().splitlines()
        print(lines[-1] if lines else json.dumps({"row": row, "failed": said[-3:]}), flush=True)


def measure(row: str, options: argparse.Namespace) -> dict[str, Any]:
    """One row in this process."""
    size, rows, mode = row.split(":")
    run = _torch if mode == "torch" else _engine
    try:
        return {"row": row, **run(_shape_name(size), int(rows), mode, options)}
    except (RuntimeError, ValueError) as problem:
        return {"row": row, "failed": str(problem).splitlines()[0]}
    finally:
        _clean_up()


def _engine(size: str, rows: int, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from gpubloom.engine.data import Batch
    from gpubloom.engine.device_placement import move_to_devices

    config, model = _config_and_model(size, rows, mode, options)
    began = time.perf_counter()
    on_devices = move_to_devices(config, model)
    executor, plan = on_devices.executor, on_devices.plan
    loaded = time.perf_counter() - began

    def step(number: int) -> torch.Tensor:
        tokens = _tokens(rows, options.length, 0 if options.fixed_batch else number)
        batch = Batch(tokens[None, :, :-1].contiguous(), tokens[None, :, 1:].contiguous())
        loss = executor.forward_backward(batch)
        executor.optimizer_step(1e-4 if options.fixed_batch else 1e-5)
        print(f"step {number}, {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        return loss

    began = time.perf_counter()
    losses = [step(number).item() for number in range(WARM_UP)]
    torch.cuda.synchronize()
    warmed_up, began = time.perf_counter() - began, time.perf_counter()
    # Begins and ends with one update of the host still under way: as many updates as steps. Each loss is read
    # when the next step is queued, as the trainer does it.
    waiting: list[torch.Tensor] = []
    for number in range(WARM_UP, WARM_UP + options.steps):
        waiting.append(step(number))
        losses += [loss.item() for loss in waiting[:-1]]
        del waiting[:-1]
    losses += [loss.item() for loss in waiting]
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / options.steps
    last = executor.last_step()
    measures = last() if last is not None else None
    executor.settle()
    if options.trace is not None:
        _trace(executor, step, options.trace / f"trace-{size}-{rows}-{mode}.json")
    profile = {"profile": profiled(lambda: step(0))} if options.profile else {}
    executor.close()
    return {
        **_result(plan.parameters, rows * options.length, seconds, losses),
        "predicted_step_s": round(plan.step_seconds, 3),
        "gpu_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
        "predicted_gpu_gb": round((plan.gpu_reserved_bytes or 0) / 1e9, 2),
        "gpu_allocated_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
        "allocation_retries": torch.cuda.memory_stats().get("num_alloc_retries", 0),
        "host_gb": _host_gb(),
        "predicted_host_gb": round(plan.host.total / 1e9, 2) if plan.host else None,
        "waiting_for_weights_s": round(measures.waiting_for_weights, 3) if measures else None,
        "waiting_for_optimizer_s": round(measures.waiting_for_optimizer, 3) if measures else None,
        "limited_by": plan.limited_by,
        "placement": plan.placement_text,
        "load_s": round(loaded, 1),
        "warm_up_s": round(warmed_up, 1),
        "host_optimizer": executor.optimizer_description,
        **profile,
    }


def _torch(size: str, rows: int, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from gpubloom.plan import named_config

    settings = named_config(size)
    config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    def step(number: int) -> torch.Tensor:
        tokens = _tokens(rows, options.length - 1, number).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [step(number).item() for number in range(WARM_UP)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    losses += [step(number).item() for number in range(WARM_UP, WARM_UP + options.steps)]
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / options.steps
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        **_result(parameters, rows * options.length, seconds, losses),
        "gpu_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
        "host_gb": _host_gb(),
    }


def _config_and_model(size: str, rows: int, mode: str, options: argparse.Namespace) -> tuple[Any, Any]:
    from gpubloom.engine.model import Model, open_blocks
    from gpubloom.engine.models.weight_sources import RandomWeights
    from gpubloom.plan import TrainConfig, named_config, named_shape

    config = TrainConfig.model_validate(
        {
            "batch_size": rows,
            "method": options.method,
            "precision": options.precision,
            "memory": {"mode": mode, "gpu_budget_gb": options.gpu_budget, "gradients": options.gradients},
            "model": {"preset": "tiny", "context_length": options.length},
            "optimizer": {"name": options.optimizer, "state": options.state, "weight_decay": 0.01}
            | ({} if options.optimizer == "adafactor" else {"beta2": 0.999}),
        }
    )
    blocks = open_blocks(named_config(size))
    model = Model(blocks, RandomWeights(blocks, 0), named_shape(size), blocks.settings)
    return config, model if options.method == "full" else model.with_adapters(config)


def _shape_name(size: str) -> str:
    from gpubloom.plan import SHAPES

    return f"qwen2.5-{size}" if f"qwen2.5-{size}" in SHAPES else size


def _tokens(rows: int, length: int, seed: int) -> Any:
    import torch

    return torch.randint(0, 150_000, (rows, length + 1), generator=torch.Generator().manual_seed(seed))


def _result(parameters: int, tokens: int, seconds: float, losses: list[float]) -> dict[str, Any]:
    return {
        "tflops": round(6 * parameters * tokens / seconds / 1e12, 1),
        "step_s": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds),
        "losses": [round(loss, 3) for loss in losses],
    }


def _trace(executor: Any, step: Any, path: Path) -> None:
    import torch

    torch.cuda.synchronize()
    executor.timeline.record()
    for number in range(2):
        step(number)
    torch.cuda.synchronize()
    executor.settle()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(span) for span in executor.timeline.recorded()]))


def _host_gb() -> float:
    """What this process has in memory now; host buffers live as long as the executor, so now is the peak."""
    from gpubloom.engine.host_memory import resident_bytes

    return round(resident_bytes() / 1e9, 2)


def _clean_up() -> None:
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
