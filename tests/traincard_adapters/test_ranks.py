"""Two ranks of one training, as real processes: told once, they stop and save together."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpubloom.traincard import ControlFile, load_latest, read_all
from tests.ports import free_port
from tests.traincard_adapters.conftest import events_of, series_of
from tests.waiting import wait_until

pytest.importorskip("torch")

pytestmark = pytest.mark.xdist_group("frameworks")

_LOOP = """
    import os, sys, time
    import torch
    from gpubloom.traincard import Reporter
    from gpubloom.traincard.adapters import Track

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.full((2, 4), float(number)) / 100 for number in range(2000)]
    with Reporter(telemetry_seconds=0) as reporter:
        track = Track(reporter, batches, optimizer=optimizer, state={"model": model}, report_every=1)
        for batch in track:
            # One rank is slower, so that each sees the same file at another step.
            time.sleep(0.002 * rank)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            track.report(loss=loss)
        print(rank, track.step, track.stopped, optimizer.param_groups[0]["lr"], flush=True)
    torch.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_both_ranks_apply_a_command_at_the_same_step(run_dir: Path) -> None:
    port = free_port()
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_LOOP)],
            env={**os.environ, **common, "BLOOM_RUN_DIR": str(run_dir), "RANK": str(rank), "LOCAL_RANK": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        file = ControlFile(run_dir)
        _wait_for_step(run_dir, 5)
        file.set({"learning_rate": 0.05})
        file.save()
        # Steps may be so quick that both wishes would be seen at once.
        _wait_for_save(run_dir)
        file.want("pause")
        said = []
        for rank in ranks:
            out, problems = rank.communicate(timeout=60)
            assert rank.returncode == 0, problems
            said.append(out.split()[1:])
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()
    assert said[0] == said[1]
    assert said[0][1:] == ["paused", "0.05"]
    last = int(said[0][0])
    saved = [event.step for event in events_of(run_dir, "checkpoint")]
    assert len(saved) == 2
    assert saved[-1] == last
    names = [path.name for path in (run_dir / "checkpoints").iterdir()]
    assert sorted(names) == [f"step-{step:08d}" for step in saved]
    # Rank 0 speaks for the run; the other one only tells how long its steps take.
    assert [step for step, _ in series_of(run_dir, "train/loss")] == list(range(1, last + 1))
    others = {name for event in read_all(run_dir) if event.rank == 1 for name, _ in event.series()}
    assert others == {"train/step_seconds"}
    assert load_latest(run_dir)["status"] == "paused"  # type: ignore[index]


def _wait_for_step(run_dir: Path, step: int) -> None:
    wait_until(lambda: ((load_latest(run_dir) or {}).get("step") or 0) >= step, f"step {step}")


def _wait_for_save(run_dir: Path) -> None:
    wait_until(lambda: events_of(run_dir, "checkpoint"), "a checkpoint")
