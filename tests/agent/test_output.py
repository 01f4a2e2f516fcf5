"""The output log: the newest is kept, nothing printed can hurt the run."""

import os
import re
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.agent.output import OutputLog
from tests.agent.runs import TIMEOUT_SECONDS, Run
from tests.small_disk import small_disk


# A file is full at every place of the seven lines of 11 bytes that are written at once.
@pytest.mark.parametrize("limit", range(20_000, 20_154, 14))
def test_the_newest_lines_are_kept_whole_and_the_rest_is_counted(tmp_path: Path, limit: int) -> None:
    log = OutputLog(tmp_path / "logs" / "output.log", limit_bytes=limit)
    lines = [f"line {number:05d}\n".encode() for number in range(10_000)]
    for start in range(0, len(lines), 7):
        log.write(b"".join(lines[start : start + 7]))
    log.close()
    older = (tmp_path / "logs" / "output.1.log").read_bytes()
    newer = (tmp_path / "logs" / "output.log").read_bytes()
    assert len(older) + len(newer) <= limit
    kept = [
        line for line in (older + newer).splitlines(keepends=True) if not line.startswith(b"[bloom-agent]")
    ]
    assert kept == lines[-len(kept) :]
    notes = re.findall(rb"\[bloom-agent\] (\d+) bytes of earlier output were dropped", older + newer)
    # Notes are lines too, and those that were dropped count.
    assert int(notes[-1]) == log.dropped_bytes
    assert log.dropped_bytes >= (len(lines) - len(kept)) * len(lines[0])


def test_one_endless_line_is_bounded_too(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "logs" / "output.log", limit_bytes=20_000)
    for _ in range(20):
        log.write(b"x" * 9_999)
    log.close()
    sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 20_000


def test_a_new_attempt_writes_behind_the_old_one(run: Run) -> None:
    run.script("import os; print('this is', os.environ['BLOOM_ATTEMPT'])")
    run.run_agent()
    run.spec = run.attempt(2)
    run.run_agent()
    told = [line for line in run.output().splitlines() if not line.startswith("[bloom-agent]")]
    assert told == ["this is 1", "this is 2"]
    assert "Attempt 2 of job job-1 starts at" in run.output()


def test_200_megabytes_leave_the_agent_small_and_the_log_bounded(run: Run) -> None:
    run.script(
        "import os\n"
        "piece = b'0123456789' * 9 + b'loss: 0.5\\n'\n"
        "for _ in range(200):\n"
        "    os.write(1, piece * 10_000)\n"
        # The agent is this script's parent, and still there.
        "print(open(f'/proc/{os.getppid()}/status').read())\n"
    )
    run.spec = replace(run.spec, output_limit_bytes=8 << 20)
    end = run.run_agent()
    assert end.code == 0
    sizes = [path.stat().st_size for path in run.files.output.parent.iterdir()]
    assert sum(sizes) <= 8 << 20
    assert end.output_dropped_bytes >= (200 << 20) * 0.9 - (8 << 20)
    peak = re.search(r"VmHWM:\s+(\d+) kB", run.output())
    assert peak is not None
    assert int(peak[1]) < 64 * 1024


def test_full_disk_under_the_log_loses_output_and_nothing_else(run: Run) -> None:
    run.script(
        "import sys, time\n"
        "print('a' * 30_000)\n"
        "print('first')\n"
        "while not __import__('os').path.exists('room'): time.sleep(0.01)\n"
        "while 'room again' not in open('logs/output.log').read():\n"
        "    print('room again', flush=True); time.sleep(0.05)\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    with run.start_agent(preexec_fn=limit) as agent:
        run.wait_for_output("aaa")
        resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (run.path / "room").touch()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert run.exit().code == 0
    assert "room again" in run.output()
    said = re.search(r"\[bloom-agent\] (\d+) bytes of output were lost: File too large", run.output())
    assert said is not None
    assert int(said[1]) == run.exit().output_dropped_bytes >= 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "256k") as folder:
        yield folder


def test_the_end_is_recorded_on_a_full_disk(disk: Path) -> None:
    run = Run(disk / "run")
    run.script("print('x' * 1_000_000); raise SystemExit(4)")
    (disk / "almost_all").write_bytes(b"x" * 200_000)
    assert run.run_agent().code == 4
    assert os.statvfs(disk).f_bavail == 0
    assert run.exit().output_dropped_bytes > 900_000
