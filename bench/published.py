"""The published figures in one run: ours, the peers that are installed, and the limit of the machine.

    python bench/published.py                                  all groups; half an hour on an H200
    python bench/published.py lora decode                      some of them
    python bench/published.py small-models --nanogpt FOLDER    beside a checkout of nanoGPT

What was measured goes into results/GPU-DATE.json; bench/draw.py makes docs/performance.md of the newest
figures there. Peers without a program in this folder (MegaTrain, DeepSpeed, Unsloth) were measured by hand.
"""

import argparse
import datetime
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.traincard.atomic_write import replace_file

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
OURS, AUTO, STREAMED, FP8 = "GPU Bloom", "GPU Bloom, auto", "GPU Bloom, streamed", "GPU Bloom, fp8"
PRODUCTS, BANDWIDTH = "limit by bf16 products", "limit by memory bandwidth"


@dataclass(frozen=True)
class Figure:
    """One value: what it is of, and the program, row and options that print it."""

    work: str
    name: str
    command: str = ""
    field: str = "tokens_per_s"
    needs: str = ""
    # Of a limit: products of a unit of work, at the speed of a large product of matrices.
    operations: float = 0.0

    @property
    def program(self) -> tuple[str, ...]:
        script, _row, *options = self.command.split()
        return (script, *options)

    @property
    def row(self) -> str:
        return self.command.split()[1]


@dataclass(frozen=True)
class Group:
    """One table and one picture."""

    name: str
    title: str
    unit: str
    note: str
    figures: tuple[Figure, ...]


def _full_training() -> Iterator[Figure]:
    for size, rows in (("1.5b", 8), ("1.5b", 64), ("3b", 8), ("3b", 32), ("7b", 8), ("7b", 64)):
        work = f"{size.upper()}, {rows} rows"
        for name, mode in ((AUTO, "auto"), (STREAMED, "stream"), ("torch, all resident", "torch")):
            yield Figure(work, name, f"engine.py {size}:{rows}:{mode}", "tflops")
            if mode == "auto" and (size, rows) == ("7b", 64):
                yield Figure(work, FP8, "engine.py 7b:64:auto --precision fp8", "tflops")
        yield Figure(work, "MegaTrain 0.3.0")
        yield Figure(work, "DeepSpeed 0.19.8, ZeRO-3 offload")
        yield Figure(work, PRODUCTS, operations=1e12)


def _lora() -> Iterator[Figure]:
    for work, command, operations in (
        ("0.5B", "small_step.py lora:4", 4 * 0.494e9),
        ("0.5B, 8 documents a row", "small_step.py packed:4", 0.0),
        ("7B", "lora.py ours", 4 * 7.62e9),
        ("7B, products in fp8", "lora.py fp8", 0.0),
        ("7B in 18.7 GB", "lora.py ours:18.7", 0.0),
        ("7B, 4-bit, in 9.2 GB", "lora.py qlora:9.2", 0.0),
    ):
        yield Figure(work, OURS, command)
        yield Figure(work, "Unsloth")
        if work == "7B":
            yield Figure(work, "PEFT", "lora.py peft-checkpointed", needs="peft")
        if operations:
            yield Figure(work, PRODUCTS, operations=operations)


def _decode() -> Iterator[Figure]:
    for work, row in (
        ("7B, one answer", "7b"),
        ("7B, 32 answers at once", "7b:32"),
        ("7B with an adapter", "7b:lora"),
        ("7B in 4 bits", "7b:nf4"),
        ("125M, one answer", "125m"),
    ):
        yield Figure(work, OURS, f"decode.py {row}")
        if row == "7b":
            yield Figure(work, "transformers, compiled", "decode.py 7b:transformers", needs="transformers")
        yield Figure(work, BANDWIDTH, f"decode.py {row}", "limit_tokens_per_s")


GROUPS = (
    Group(
        "full-training",
        "Full training, 1024 tokens a row, TFLOP/s",
        "TFLOP/s",
        "Qwen2.5 shapes, AdamW, clipping at 1.0, FP32 master weights. Auto: the plan chooses what "
        "stays on the GPU. Streamed: parameters and optimizer state stay in host memory; of 8 rows,"
        " the speed depends on the host (267, 263 and 281 on the fastest machines of the same "
        "kind). MegaTrain updates bf16 weights in place; torch uses activation checkpointing. fp8: "
        "auto, with the products of linear layers in 8 bits.",
        tuple(_full_training()),
    ),
    Group(
        "largest-models",
        "Full training of models larger than the GPU, tokens a second",
        "tokens/s",
        "8 × 1024 tokens, AdamW, clipping at 1.0, FP32 master weights, 125 GiB of host memory; "
        "ten steps each. The largest of each kind that was run. Nobody measured a peer at these "
        "sizes: DeepSpeed exceeded host memory at 7B.",
        (
            Figure("14B, FP32 moments", OURS, "engine.py 14b:8:auto --steps 7"),
            Figure("17.5B, FP32 moments", OURS, "engine.py 17.5b:8:auto --steps 7 --gradients twice"),
            Figure("26B, 8-bit moments", OURS, "engine.py 26b:8:auto --steps 7 --state 8bit"),
        ),
    ),
    Group(
        "small-models",
        "124M from scratch, tokens a second",
        "tokens/s",
        "nanoGPT: its own bench.py on random data (a GPT-2 compiled as a whole, FP32 weights under "
        "bf16 autocast, fused AdamW, no clipping), in the same call as ours. Products alone are a "
        "limit that no training of a model this small comes near.",
        tuple(
            figure
            for rows in (12, 32)
            for figure in (
                Figure(f"{rows} × 1024", OURS, f"small_step.py ours:{rows}"),
                Figure(f"{rows} × 1024", "nanoGPT", f"small_step.py nanogpt:{rows}", needs="--nanogpt"),
                Figure(f"{rows} × 1024", PRODUCTS, operations=6 * 124e6),
            )
        ),
    ),
    Group(
        "lora",
        "LoRA, rank 16 on all linear layers, 4 × 2048, tokens a second",
        "tokens/s",
        "The limits in the names are GPU memory. Unsloth 2026.10.9; Hugging Face PEFT with "
        "activation checkpointing; both on other machines of the same kind. Rows of eight documents "
        "were measured with attention masks.",
        tuple(_lora()),
    ),
    Group(
        "finetune",
        "From the start of the process to the saved adapter, seconds (less is better)",
        "s",
        "LoRA of a 0.5B model, 7,000 short examples, two epochs, packed into steps of 8 × 1024 "
        "tokens, bf16. GPU Bloom: `bloom finetune` with its defaults, with three evaluations and "
        "two checkpoints in that time. TRL 1.16: packing, no activation checkpointing, no "
        "evaluation; the day before, on another machine of the same kind.",
        (
            Figure("0.5B, LoRA", OURS, "finetune.py ours", "seconds"),
            Figure("0.5B, LoRA", "TRL", "finetune.py trl", "seconds", needs="trl"),
        ),
    ),
    Group(
        "decode",
        "Answers, tokens a second",
        "tokens/s",
        "Prompts of 512 tokens, bf16, greedy, random weights in the shape of Qwen2.5. transformers:"
        " static cache, compiled, on another machine of the same kind. The limit is the time to read "
        "all weights once for each token.",
        tuple(_decode()),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(group.name for group in GROUPS))
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    unknown = set(options.groups) - {group.name for group in GROUPS}
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    machine = measured_machine()
    gpu = machine["gpus"][0]["name"] if machine["gpus"] else "cpu"
    rate = machine["calibration"]["matrix_flops"]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = options.out / f"{kind_of(gpu)}-{date}.json"
    for group in GROUPS:
        if options.groups and group.name not in options.groups:
            continue
        for figure, value in measured(wanted(group.figures, options.nanogpt), options.nanogpt, rate):
            entry = {"group": group.name, "work": figure.work, "name": figure.name, "value": value}
            print(json.dumps(entry), flush=True)
            record(path, gpu, date, entry)
    print(f"Written: {path}. To update the page: python bench/draw.py")


def kind_of(gpu: str) -> str:
    """h200 of "NVIDIA H200"; a name without such a part as it is."""
    kind = re.search(r"\b[A-Z]{1,3}\d{2,4}\b", gpu)
    return (kind[0] if kind else gpu.replace(" ", "-")).lower()


def record(path: Path, gpu: str, date: str, entry: dict[str, Any]) -> None:
    """Add a figure to the file of the day at once, in place of an earlier value of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = json.loads(path.read_text())["figures"] if path.exists() else []
    figures = [each for each in figures if any(each[key] != entry[key] for key in ("group", "work", "name"))]
    found = {"machine": gpu, "date": date, "figures": [*figures, entry]}
    replace_file(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def measured_machine() -> dict[str, Any]:
    command = [sys.executable, "-m", "gpubloom.engine.calibrate"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    machine: dict[str, Any] = json.loads(done.stdout)
    return machine


def wanted(figures: Sequence[Figure], nanogpt: Path | None) -> list[Figure]:
    """Those that can be measured here; says which peers are missing."""
    possible = []
    for figure in figures:
        missing = figure.needs == "--nanogpt" and nanogpt is None
        if figure.needs and figure.needs != "--nanogpt":
            missing = importlib.util.find_spec(figure.needs) is None
        if missing:
            print(f"{figure.name} is not here: {figure.work} is measured without it.", flush=True)
        elif figure.command or figure.operations:
            possible.append(figure)
    return possible


def measured(
    figures: Sequence[Figure], nanogpt: Path | None, rate: float | None
) -> Iterator[tuple[Figure, float]]:
    """Each program once for all its rows, so that a model is made once and sides are measured together."""
    programs = dict.fromkeys(figure.program for figure in figures if figure.command)
    for program in programs:
        own = [figure for figure in figures if figure.command and figure.program == program]
        rows = list(dict.fromkeys(figure.row for figure in own))
        command = [sys.executable, str(BENCH / program[0]), *rows, *program[1:]]
        if nanogpt is not None and program[0] == "small_step.py":
            command += ["--nanogpt", str(nanogpt)]
        missing = list(own)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for text in running.stdout:
                line = printed(text)
                for figure in [each for each in missing if each.row in line.values()]:
                    if figure.field in line:
                        missing.remove(figure)
                        yield figure, line[figure.field]
        for figure in missing:
            print(f"No figure of {figure.work}, {figure.name}: python {' '.join(command[1:])}", flush=True)
    for figure in figures:
        if figure.operations and rate is not None:
            yield figure, round(rate / figure.operations, 1)


def printed(text: str) -> dict[str, Any]:
    """What a program printed in a line, if it is an object of JSON."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return line if isinstance(line, dict) else {}


if __name__ == "__main__":
    main()
