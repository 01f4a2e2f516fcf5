"""One attempt of a run in a process of its own.

python -m tests.engine.one_attempt CONFIG RUN_DIR STOP_AT [--resume]; a STOP_AT of 0 is never.
"""

import sys
from pathlib import Path

from gpubloom.plan import TrainConfig
from tests.engine.runs import Run

if __name__ == "__main__":
    config, run_dir, stop_at, *rest = sys.argv[1:]
    Path(run_dir).mkdir(exist_ok=True)
    run = Run(Path(run_dir), TrainConfig.model_validate_json(Path(config).read_text()))
    run.train(resume="--resume" in rest, stop_at=int(stop_at) or None)
