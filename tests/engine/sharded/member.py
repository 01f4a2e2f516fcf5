"""One process of several that train the cases divided: python -m tests.engine.sharded.member OUT CASE …"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.parallel import Group
from tests.engine.sharded.cases import CASES, executor_of, train


def main() -> None:
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    group = Group(rank, size, rank, size)
    found = {}
    for name in sys.argv[2:]:
        trained = CASES[name]()
        found[name] = train(executor_of(ShardedExecutor, trained, group), trained, group)
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
