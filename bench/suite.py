"""All that the engine's speed is made of, a few seconds each, beside what this machine gave last time.

    make bench                       or: python bench/suite.py [--only step loader] [--no-record]

Tokenizer, loader, step, sums of gradients, one to N processes, checkpoint, Reporter. The fastest of a few
repetitions counts, since other work can only make it slower. Results go to bench/results/<machine>.json;
what takes more than a tenth longer than the last recorded run is marked, and the exit status says so.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import all_reduce
import checkpoint
import numpy as np
import recorded
import reporter
import torch
from cpu_step import EngineLoop
from nano_loop import NanoModel, PlainLoop
from recorded import Row

from gpubloom.engine.data import Loader
from gpubloom.engine.data.rows import Windows
from gpubloom.engine.data.tokenizer import Tokenizer
from gpubloom.engine.parallel import process_layout
from gpubloom.engine.shards.shard_files import (
    ShardFolder,
    moment_stretches,
    shard,
    weight_stretches,
    write_shards,
)
from gpubloom.plan import TokenizerConfig, TrainConfig

TEXT_BYTES = 500_000
ROWS = 16
VOCABULARY = 257
_PRODUCT = 512


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments.add_argument("--no-record", action="store_true", help="compare, and keep the last run")
    given = arguments.parse_args()
    file = recorded.FOLDER / f"{recorded.machine()}.json"
    before = recorded.last(file)
    load, cores = os.getloadavg()[0], torch.get_num_threads()
    rows: list[Row] = []
    for name in given.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += PARTS[name]()
    text, slower = recorded.table(rows, before)
    print(f"{file.stem}, torch {torch.__version__}, {cores} threads, load {load:.1f}\n{text}")
    if load > cores / 2:
        print("Other work keeps this machine busy: compare rows with each other, not with another run.")
    if not given.no_record:
        # A run of some parts keeps what the others gave last.
        measured = {row.name for row in rows}
        kept = [row for name, row in before.items() if name not in measured]
        about = {"torch": torch.__version__, "threads": cores, "load": round(load, 1)}
        recorded.record(file, [*kept, *rows], about)
    sys.exit(1 if slower else 0)


def _tokenizer() -> Iterator[Row]:
    text = _text()
    size = len(text.encode()) / 1e6
    plain = Tokenizer.create(TokenizerConfig(kind="bytes"), [])
    yield Row("tokenizer: bytes", size / _fastest(lambda: plain.encode(text)), "MB/s", higher=True)
    config = TokenizerConfig(kind="bpe", vocab_size=2_000)
    made: list[Tokenizer] = []
    seconds = _fastest(lambda: made.append(Tokenizer.create(config, [text])), 1)
    yield Row("tokenizer: learning 2,000 BPE tokens", size / seconds, "MB/s", higher=True)
    seconds = _fastest(lambda: made[0].encode(text), 2)
    yield Row("tokenizer: BPE", size / seconds, "MB/s", higher=True)


def _loader() -> Iterator[Row]:
    config = _config("tiny")
    windows = Windows(_tokens(), config.context_length)
    loader = Loader(windows, batch_size=ROWS, accumulation=1, seed=0)
    batches = loader.rest_of_epoch()
    seconds = _fastest(lambda: next(batches), 20)
    yield Row(f"loader: a batch of {ROWS} x {config.context_length}", 1e6 * seconds, "µs")


def _step() -> Iterator[Row]:
    config = _config("tiny")
    engine, tokens = EngineLoop(config, _tokens()), ROWS * config.context_length
    shape = config.model.shape(VOCABULARY)
    model = NanoModel(VOCABULARY, shape.hidden_size, shape.layers, shape.heads, shape.context_length)
    plain = PlainLoop(model, _tokens(), ROWS, shape.context_length)
    times: dict[str, list[float]] = {"engine": [], "plain": []}
    for number in range(10):
        for name, loop in (("engine", engine), ("plain", plain)):
            seconds = _seconds(loop.step)
            # The first steps allocate.
            times[name] += [seconds] if number > 1 else []
    best = {name: min(found) for name, found in times.items()}
    yield Row("step: tiny, not compiled", tokens / best["engine"], "tokens/s", higher=True)
    yield Row("step: times the plain loop", best["plain"] / best["engine"], "", higher=True)
    # What matrix products alone would allow, at the rate of a large one.
    left, right = (torch.randn(_PRODUCT, _PRODUCT) for _ in range(2))
    rate = 2 * _PRODUCT**3 / _fastest(lambda: torch.mm(left, right), 10)
    yield Row("step: limit by matrix products", rate / (6 * shape.parameters), "tokens/s", higher=True)


def _sums() -> Iterator[Row]:
    yield Row("all-reduce: 4 MB, 2 processes", all_reduce.measure(2, 4.0), "ms")


def _processes() -> Iterator[Row]:
    config = _config("tiny").model_copy(update={"processes": "auto"})
    cores = torch.get_num_threads()
    choices = [(count, 1) for count in range(1, cores + 1) if ROWS % count == 0]
    rates = process_layout.measure(config, choices)
    first = rates.get("1 x 1")
    for (count, _), rate in zip(choices, rates.values(), strict=False):
        yield Row(f"processes: {count} of one thread", rate, "tokens/s", higher=True)
        if count > 1 and first:
            yield Row(
                f"processes: {count}, share of {count} times one", rate / first / count, "", higher=True
            )


def _checkpoint() -> Iterator[Row]:
    given = argparse.Namespace(hidden=512, layers=4, state="device", device="cpu")
    executor = checkpoint.make_executor(given)
    weights, moments = weight_stretches(executor.model), moment_stretches(executor.model)
    shardings = [shard(weights, "model"), shard(moments, "optimizer")]
    total = sum(each.total_bytes for each in shardings)
    written: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:

        def write() -> None:
            for old in Path(folder).iterdir():
                old.unlink()
            written.update(write_shards(Path(folder), executor.snapshot(total), shardings))

        def read() -> None:
            shards = ShardFolder(Path(folder), written, "")
            for stem, stretches in (("model", weights), ("optimizer", moments)):
                shards.read(stem, stretches, lambda each: getattr(executor.stores[each.block], each.part))

        yield Row("checkpoint: written", total / _fastest(write) / 1e9, "GB/s", higher=True)
        yield Row("checkpoint: read", total / _fastest(read) / 1e9, "GB/s", higher=True)
    executor.close()


def _reporter() -> Iterator[Row]:
    for metrics in (1, 10):
        with tempfile.TemporaryDirectory() as folder, reporter.reporter(Path(folder)) as log:
            times = sorted(reporter.measure(log, metrics, 5_000, 5.0))
        yield Row(f"reporter: {metrics} metric{'s' if metrics > 1 else ''}", times[len(times) // 2], "µs")


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "tokenizer": _tokenizer,
    "loader": _loader,
    "step": _step,
    "all-reduce": _sums,
    "processes": _processes,
    "checkpoint": _checkpoint,
    "reporter": _reporter,
}


def _config(size: str) -> TrainConfig:
    return TrainConfig.model_validate(
        {"device": "cpu", "batch_size": ROWS, "model": {"preset": size}, "compile": "off"}
    )


def _tokens() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 200, 200_000).astype(np.uint16)


def _text() -> str:
    """Python's own sources, which every machine has."""
    found, size = [], 0
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        with contextlib.suppress(UnicodeDecodeError):
            found.append(file.read_text(encoding="utf-8"))
            size += len(found[-1])
        if size > TEXT_BYTES:
            break
    return "".join(found)[:TEXT_BYTES]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _fastest(work: Callable[[], object], repetitions: int = 3) -> float:
    return min(_seconds(work) for _ in range(repetitions))


if __name__ == "__main__":
    main()
