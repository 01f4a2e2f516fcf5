"""One process of several that train divided models: python -m tests.engine.sharded.member OUT CASE …

Besides the cases, whose answers it leaves in OUT, it takes three steps of a small model and saves that.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.parallel import Group
from tests.engine.sharded.cases import CASES, executor_of, train
from tests.engine.sharded.saved import go_on


def main() -> None:
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    group = Group(rank, size, rank, size)
    found = {}
    for name in sys.argv[2:]:
        trained = CASES[name]()
        found[name] = train(executor_of(ShardedExecutor, trained, group), trained, group)
    (out / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    go_on(out / "checkpoints", range(3), out / "losses.json", group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
