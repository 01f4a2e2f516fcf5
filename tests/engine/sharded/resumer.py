"""One process of several that continue a run: python -m tests.engine.sharded.resumer FOLDER FIRST LAST OUT

Continues from the newest checkpoint in FOLDER if there is one, trains the steps, and saves.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gpubloom.engine.parallel import Group
from tests.engine.sharded.saved import go_on


def main() -> None:
    torch.set_num_threads(1)
    folder, first, last, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    go_on(folder, range(first, last), out, Group(rank, size, rank, size))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
