"""One process of a candidate of a trial: joins the others and takes some steps; the first prints the rate.

A module of its own, since nothing that is imported elsewhere should be run as a program.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.model import Model
from gpubloom.engine.parallel import join
from gpubloom.engine.parallel.process_layout import limit_threads, shared_out
from gpubloom.plan import TrainConfig, shape_of

_WARM_STEPS = 2
_STEPS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Takes the steps of the config that is named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("config", type=Path)
    config = TrainConfig.read(parser.parse_args(arguments).config)
    group = join(os.environ, on_gpu=False)
    config = shared_out(config, group.size).model_copy(update={"compile": "off"})
    limit_threads(group.local_size)
    vocabulary = shape_of(config).vocab_size
    model = Model.open(config, vocab_size=vocabulary, end_of_text=0)
    executor = move_to_devices(config, model, None, group).executor
    random = torch.Generator().manual_seed(group.rank)
    shape = (config.accumulation, config.batch_size, config.context_length)
    tokens = torch.randint(0, vocabulary, shape, generator=random)
    batch = Batch(tokens, tokens.roll(-1, dims=2), None, 0)
    started = 0.0
    for step in range(_WARM_STEPS + _STEPS):
        if step == _WARM_STEPS:
            started = time.perf_counter()
        executor.forward_backward(batch)
        executor.optimizer_step(1e-6)
    # The last update may still be under way: the sum waits for everybody.
    (count,) = group.total(batch.token_count * _STEPS)
    seconds = time.perf_counter() - started
    executor.close()
    group.leave()
    if group.leads:
        sys.stdout.write(json.dumps({"tokens_per_second": count / seconds}) + "\n")


if __name__ == "__main__":
    main()
