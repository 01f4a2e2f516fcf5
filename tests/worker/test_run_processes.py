"""What a worker notes of the ranks of a run, for the page of its job."""

from pathlib import Path

from gpubloom.server.jobs.run_watch import RunWatch
from gpubloom.traincard import Reporter


def _write(run_dir: Path, ranks: int) -> None:
    for rank in range(ranks):
        with Reporter(run_dir, rank=rank, world_size=ranks, telemetry_seconds=0) as reporter:
            reporter.system({"cpu/utilization": 50.0 + rank, "disk/read": 1e6, "note": "odd"})
            for step in (1, 2, 3):
                reporter.metric("step_seconds", 0.5 + 0.1 * rank, step)


def test_every_rank_is_noted_with_its_step_and_how_far_ranks_lie_apart(tmp_path: Path) -> None:
    _write(tmp_path, 3)
    watch = RunWatch(tmp_path, has_history=True)
    watch.find_processes()
    _, processes = watch.look()
    assert [(each.rank, each.step) for each in processes.ranks] == [(0, 3), (1, 3), (2, 3)]
    assert [each.step_seconds for each in processes.ranks] == [0.5, 0.6, 0.7]
    assert all(each.host for each in processes.ranks)
    (spread,) = processes.rank_variance
    assert (spread.name, spread.lowest.rank, spread.highest.rank) == ("train/step_seconds", 0, 2)
    assert spread.spread is not None
    assert abs(spread.spread - 0.4) < 1e-6
    # All on this machine, whose telemetry is in the summary already.
    assert (processes.nodes, processes.left_out) == ([], 0)


def test_a_run_of_one_process_has_no_table_of_ranks(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    watch = RunWatch(tmp_path, has_history=True)
    watch.find_processes()
    assert watch.look()[1].ranks == []
