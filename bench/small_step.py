"""Small models on a GPU: the engine beside a nanoGPT-style loop, in tokens a second.

    python bench/small_step.py                        124M with 12 and 32 rows, both; a 0.5B with adapters
    python bench/small_step.py ours:12 nano:12        some of them: WHAT:ROWS
    python bench/small_step.py trainer:12             the whole trainer: loader, metrics, losses read late
    python bench/small_step.py lora:4 packed:4        adapters; rows that hold eight documents each
    python bench/small_step.py packed:4 masked:4      the same rows by the documents' boundaries and by a mask
    python bench/small_step.py ours:12 nanogpt:12 --nanogpt ~/nanoGPT      beside nanoGPT's own bench.py

`ours` is the preset 125m with a vocabulary of 50,304 and rows of 1,024 tokens. `nano` does what nanoGPT's own
bench does: a GPT-2 of that size compiled as a whole, FP32 weights under bf16 autocast, fused AdamW, no
clipping, the loss read after every step. `lora` has rank 16 on all linear layers of a Qwen2.5-0.5B with
random weights and rows of 2,048 tokens. Every row runs in a process of its own and prints one JSON line;
`--profile` adds the kernels that took longest.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels import profiled

ROWS = ["ours:12", "nano:12", "ours:32", "nano:32", "lora:4"]
VOCABULARY, HIDDEN, LAYERS, HEADS = 50_304, 768, 12, 12
WARM_UP, STEPS = 8, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="WHAT:ROWS")
    parser.add_argument("--compile", default="on", choices=["on", "off"])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    if options.nanogpt is None and any(row.startswith("nanogpt:") for row in options.rows):
        parser.error("rows of nanogpt need --nanogpt FOLDER")
    rest = [argument for argument in sys.argv[1:] if argument not in options.rows]
    for row in options.rows:
        if options.here:
            print(json.dumps({"row": row, **_measure(row, options)}), flush=True)
            continue
        command = [sys.executable, __file__, row, *rest, "--here"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        failed = {"row": row, "failed": done.stderr.strip().splitlines()[-3:]}
        print(lines[-1] if lines else json.dumps(failed), flush=True)


def _measure(row: str, options: argparse.Namespace) -> dict[str, Any]:
    what, rows = row.split(":")
    match what:
        case "nano":
            return _nano(int(rows), options)
        case "nanogpt":
            return _nanogpt(int(rows), options)
        case "trainer":
            return _trainer(int(rows), options)
        case _:
            return _engine(what, int(rows), options)


def _engine(what: str, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from gpubloom.engine.data import Batch
    from gpubloom.engine.device_placement import move_to_devices

    length = 1_024 if what == "ours" else 2_048
    said: list[str] = []
    config, model = _config_and_model(what, rows, length, options)
    on_devices = move_to_devices(config, model, say=said.append)
    executor, plan = on_devices.executor, on_devices.plan
    tokens = torch.randint(0, 50_000, (4, 1, rows, length + 1), generator=torch.Generator().manual_seed(0))
    documents = torch.arange(length).mul(8).div(length, rounding_mode="floor").repeat(1, rows, 1)
    batches = [
        Batch(
            each[..., :-1],
            each[..., 1:],
            documents if what in {"packed", "masked"} else None,
            most_documents_per_row=8 if what == "packed" else None,
        ).pinned()
        for each in tokens
    ]

    def step(number: int) -> torch.Tensor:
        loss = executor.forward_backward(batches[number % len(batches)])
        executor.optimizer_step(3e-4)
        return loss

    seconds, first = _timed(step)
    found = {
        **_result(rows * length, seconds, first),
        "loss": round(float(step(0)), 3),
        "predicted_ms": round(1e3 * plan.step_seconds, 2),
        "gpu_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
        "predicted_gb": round((plan.gpu_reserved_bytes or 0) / 1e9, 2),
        "recorded": plan.placement is not None and plan.placement.cuda_graph,
        "said": said,
    }
    executor.evaluate(batches[0])
    found["gpu_gb_with_evaluation"] = round(torch.cuda.max_memory_reserved() / 1e9, 2)
    if options.profile:
        found["profile"] = profiled(lambda: step(0))
    executor.close()
    return found


def _nano(rows: int, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from nano_loop import BETAS, DECAY, NanoModel

    torch.backends.cuda.matmul.allow_tf32 = True
    length = 1_024
    with torch.device("cuda"):
        model = NanoModel(VOCABULARY, HIDDEN, LAYERS, HEADS, length)
        tokens, targets = torch.randint(0, 50_000, (2, rows, length)).unbind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=BETAS, weight_decay=DECAY, fused=True)

    def loss_of() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    # As nanoGPT does: the loss is part of what is compiled.
    compiled = torch.compile(loss_of) if options.compile == "on" else loss_of

    def step(number: int) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        return loss.detach()

    seconds, first = _timed(step)
    reserved = torch.cuda.max_memory_reserved() / 1e9
    return {**_result(rows * length, seconds, first), "gpu_gb": round(reserved, 2)}


def _nanogpt(rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Its own bench on random data: the time of its last 20 steps, each waited for."""
    command = [sys.executable, "bench.py", "--real_data=False", f"--batch_size={rows}"]
    command.append(f"--compile={options.compile == 'on'}")
    done = subprocess.run(command, cwd=options.nanogpt, capture_output=True, text=True, check=True)
    found = re.search(r"time per iteration: ([0-9.]+)ms", done.stdout)
    assert found is not None, done.stdout
    ms = float(found[1])
    return {"tokens_per_s": round(1e3 * rows * 1_024 / ms), "step_ms": round(ms, 2)}


def _trainer(rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Random text through the trainer; the median of what it reports after its first steps."""
    import statistics

    import numpy as np

    from gpubloom.engine import Dataset, Trainer
    from gpubloom.traincard import Reporter, RunFiles

    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_bytes(np.random.default_rng(0).integers(97, 123, 4_000_000, dtype=np.uint8).tobytes())
        config, model = _config_and_model(
            "ours", rows, 1_024, options, data={"train_path": str(text)}, max_steps=WARM_UP + 2 * STEPS
        )
        run_dir = Path(folder) / "run"
        run_dir.mkdir()
        dataset = Dataset.open(config.data, config.context_length)
        with Reporter(run_dir) as reporter:
            trainer = Trainer(config, model, dataset, reporter)
            began = time.perf_counter()
            trainer.train()
        files = RunFiles(run_dir)
        paths = [*files.sealed().values(), files.tail(0)]
        events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    rates = [
        event["values"]["tokens_per_second"]
        for event in events
        if event["kind"] == "metric" and event["step"] > WARM_UP and "train/loss" in event["values"]
    ]
    return {
        "tokens_per_s": round(statistics.median(rates)),
        "mean_tokens_per_s": round(statistics.fmean(rates)),
        "steps": len(rates),
        "train_s": round(time.perf_counter() - began, 1),
    }


def _config_and_model(
    what: str, rows: int, length: int, options: argparse.Namespace, **fields: Any
) -> tuple[Any, Any]:
    from gpubloom.engine.model import Model, open_blocks
    from gpubloom.engine.models.weight_sources import RandomWeights
    from gpubloom.plan import TrainConfig, named_config, named_shape

    config = TrainConfig.model_validate(
        {
            "batch_size": rows,
            "compile": options.compile,
            "method": "full" if what == "ours" else "lora",
            "lora": {"rank": 16},
            "model": {"preset": "125m" if what == "ours" else "tiny", "context_length": length},
            **fields,
        }
    )
    if what == "ours":
        return config, Model.open(config, vocab_size=VOCABULARY)
    blocks = open_blocks(named_config("qwen2.5-0.5b"))
    model = Model(blocks, RandomWeights(blocks, 0), named_shape("qwen2.5-0.5b"), blocks.settings)
    return config, model.with_adapters(config)


def _timed(step: Callable[[int], Any]) -> tuple[float, float]:
    """Seconds of a step when none is waited for, and of the first one."""
    import torch

    began = time.perf_counter()
    step(0)
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(STEPS):
        step(number)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS, first


def _result(tokens: int, seconds: float, first: float) -> dict[str, Any]:
    return {
        "tokens_per_s": round(tokens / seconds),
        "step_ms": round(1e3 * seconds, 2),
        "first_step_s": round(first, 1),
    }


if __name__ == "__main__":
    main()
