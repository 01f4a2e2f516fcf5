"""What diagnosis says about runs made of single events: each finding, and the runs in which there is none."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import Finding, Limits, Reading, RunEvent, diagnose, snapshot

_GIB = 1024**3
_BEGIN = 1_000_000.0


class Run:
    """A run on other machines, told event by event; time passes only when somebody says so."""

    def __init__(self, folder: Path, world_size: int = 1) -> None:
        self.reading = Reading(folder)
        self.now = _BEGIN
        self._seq: dict[int, int] = {}
        for rank in range(world_size):
            self.say("start", rank=rank, attempt=1, host=f"node{rank}", pid=rank, world_size=world_size)

    def say(self, kind: str, *, rank: int = 0, step: int | None = None, **fields: Any) -> None:
        seq = self._seq[rank] = self._seq.get(rank, -1) + 1
        fields = {
            "seq": seq,
            "t": self.now,
            "kind": kind,
            **({} if step is None else {"step": step}),
            **fields,
        }
        self.reading.add(RunEvent(1, rank, seq, self.now, kind, step, fields), self.now)

    def metric(self, step: int, rank: int = 0, **values: float) -> None:
        self.say("metric", rank=rank, step=step, values=values)

    def look(self, rank: int = 0, **values: float) -> None:
        self.say(
            "system", rank=rank, values={name.replace("__", "/"): value for name, value in values.items()}
        )

    def findings(self, **limits: float) -> list[Finding]:
        return diagnose(self.reading, self.now, Limits(**limits))

    def kinds(self, **limits: float) -> list[str]:
        return [finding.kind for finding in self.findings(**limits)]


@pytest.fixture
def start_run(tmp_path: Path) -> Callable[..., Run]:
    return lambda **options: Run(tmp_path, **options)


Start = Callable[..., Run]


def test_a_run_that_trains_has_no_findings(start_run: Start) -> None:
    run = start_run()
    random.seed(1)
    for step in range(500):
        run.now += 1
        run.metric(step, loss=4 * math.exp(-step / 100) + 1 + random.gauss(0, 0.1), grad_norm=1.0, lr=1e-3)
        run.look(gpu__0__utilization=97, gpu__0__memory_used=70e9, gpu__0__memory_total=80e9,
                 gpu__0__temperature=65, cpu__utilization=30, ram__used=10e9, ram__total=64e9)  # fmt: skip
        assert run.findings() == []


def test_a_loop_that_says_nothing_for_long_is_stalled(start_run: Start) -> None:
    run = start_run()
    run.metric(7, loss=1.0)
    stalled_at = run.now
    for second in range(1, 400):
        run.now += 1
        run.say("heartbeat", expect_next_in=10, auto=True)
        run.look(gpu__0__utilization=0)
        assert (run.kinds() == ["stalled"]) == (second >= 300)
    (finding,) = run.findings()
    assert finding.severity == "critical"
    assert finding.since == stalled_at
    assert "no progress for 6 min 39 s" in finding.sentence
    assert "step 7" in finding.sentence
    assert "idle" in finding.sentence
    assert finding.evidence["gpu_utilization"] == 0
    run.metric(8, loss=1.0)
    assert run.findings() == []


def test_busy_gpus_make_a_stall_less_certain(start_run: Start) -> None:
    run = start_run()
    for _ in range(20):
        run.now += 20
        run.say("heartbeat", expect_next_in=30, auto=True)
        run.look(gpu__0__utilization=100)
    (finding,) = run.findings()
    assert finding.severity == "warning"
    assert "100% busy" in finding.sentence


@pytest.mark.parametrize("order", ["heartbeat first", "phase first"])
def test_an_announced_pause_is_no_stall_until_it_is_over(start_run: Start, order: str) -> None:
    run = start_run()
    run.metric(7, loss=1.0)
    run.now += 1
    if order == "phase first":
        run.say("phase", phase="save")
    run.say("heartbeat", expect_next_in=60)
    if order == "heartbeat first":
        run.say("phase", phase="save")
    for _ in range(60):
        run.now += 1
        assert run.kinds(stall_seconds=5) == []
    run.now += 6
    (finding,) = run.findings(stall_seconds=5)
    assert (finding.kind, finding.evidence["explains"]) == ("degraded", ["stalled"])


def test_a_promise_ends_when_the_loop_moves_on(start_run: Start) -> None:
    run = start_run()
    run.say("heartbeat", expect_next_in=600)
    run.now += 1
    run.metric(8, loss=1.0)
    run.now += 12
    (finding,) = run.findings(stall_seconds=5)
    assert (finding.kind, finding.evidence["explains"]) == ("degraded", ["stalled"])


def test_metrics_that_stand_behind_a_later_promise_do_not_end_it(start_run: Start) -> None:
    run = start_run()
    later = run.now + 2
    run.reading.add(
        RunEvent(1, 0, 5, later, "heartbeat", None, {"t": later, "kind": "heartbeat", "expect_next_in": 60}),
        run.now,
    )
    run.metric(8, loss=1.0)
    run.now += 30
    assert run.kinds(stall_seconds=5) == []


def test_a_silent_rank_is_named_with_its_last_sign_of_life(start_run: Start) -> None:
    run = start_run(world_size=4)
    for step in range(30):
        run.now += 1
        for rank in range(4):
            if rank != 2 or step < 10:
                run.metric(step, rank=rank, step_seconds=1.0)
    (finding,) = run.findings()
    assert (finding.kind, finding.severity) == ("degraded", "critical")
    assert finding.evidence["rank"] == 2
    assert finding.evidence["host"] == "node2"
    assert finding.since == _BEGIN + 10
    assert finding.sentence.startswith("Rank 2 on node2 has not reported for 20 s")
    assert "step 9" in finding.sentence
    run.metric(30, rank=2, step_seconds=1.0)
    assert run.findings() == []


def test_a_rank_that_failed_is_named_with_its_error(start_run: Start) -> None:
    run = start_run(world_size=2)
    run.metric(3, loss=1.0)
    run.say("error", rank=1, type="RuntimeError", message="CUDA out of memory\nmore", traceback="…")
    run.say("end", rank=1, status="failed")
    (finding,) = run.findings()
    assert finding.evidence["rank"] == 1
    assert "RuntimeError: CUDA out of memory" in finding.sentence
    assert "more" not in finding.sentence


def test_ranks_that_go_with_another_are_one_finding_about_the_first(start_run: Start) -> None:
    run = start_run(world_size=4)
    for rank in range(4):
        run.metric(3, rank=rank, loss=1.0)
    for rank in (1, 3):
        run.say("error", rank=rank, type="RuntimeError", message="Connection closed", cause="lost_rank")
        run.say("end", rank=rank, status="failed")
    run.now += 5
    run.say("error", rank=2, type="RuntimeError", message="CUDA out of memory", cause="gpu_out_of_memory")
    run.say("end", rank=2, status="failed")
    run.now += 400
    (finding,) = run.findings()
    assert (finding.evidence["rank"], finding.evidence["others"]) == (2, [0, 1, 3])
    assert finding.sentence.endswith("CUDA out of memory. Ranks also missing: 0, 1, 3.")
    assert finding.evidence["explains"] == ["stalled"]


def test_ranks_that_ended_as_they_should_are_not_missed(start_run: Start) -> None:
    run = start_run(world_size=2)
    run.say("end", rank=1, status="completed")
    run.say("end", rank=0, status="completed")
    run.now += 1000
    assert run.findings() == []


def test_a_loss_that_is_not_a_number_is_named_from_its_first_step(start_run: Start) -> None:
    run = start_run()
    for step in range(50):
        run.metric(step, loss=1.0 if step < 40 else math.nan)
    (finding,) = run.findings()
    assert (finding.kind, finding.severity) == ("diverging", "critical")
    assert "train/loss has been NaN since step 40" in finding.sentence
    assert finding.evidence["before"] == {"step": 39, "value": 1.0}
    run.say("end", status="failed")
    assert run.kinds() == ["diverging"]


def test_losses_and_norms_that_turn_nan_together_are_one_finding_about_the_training(start_run: Start) -> None:
    run = start_run()
    for step in range(600):
        value = 4.0 - step / 200 if step < 550 else math.nan
        run.metric(step, loss=value, aux_loss=value, grad_norm=value)
        if step % 50 == 0:
            run.metric(step, **{"eval/loss": value})
    (finding,) = run.findings()
    assert finding.sentence.startswith("train/loss has been NaN since step 550.")
    assert finding.evidence["others"] == ["train/aux_loss", "train/grad_norm", "eval/loss"]
    assert "lower learning rate" in finding.next_step


def test_a_gradient_norm_that_turns_nan_before_the_loss_is_the_cause(start_run: Start) -> None:
    run = start_run()
    for step in range(50):
        run.metric(step, loss=1.0 if step < 31 else math.nan, grad_norm=1.0 if step < 30 else math.nan)
    (finding,) = run.findings()
    assert finding.sentence.startswith("train/grad_norm has been NaN since step 30.")


def test_a_loss_that_rose_explains_that_nothing_was_learned_and_that_evaluations_are_worse(
    start_run: Start,
) -> None:
    run = start_run()
    for step in range(1, 601):
        run.metric(step, loss=2.0 + step / 100)
        if step % 100 == 0:
            run.metric(step, **{"eval/loss": 2.0 + step / 100})
    (finding,) = run.findings()
    assert finding.kind == "diverging"
    assert finding.evidence["explains"] == ["no_learning", "overfitting"]


def test_an_eval_loss_that_jumps_alone_is_overfitting(start_run: Start) -> None:
    run = start_run()
    for step in range(1, 41):
        run.metric(step, loss=3.0 - step / 20, **{"eval/loss": 2.0 if step < 35 else 6.0 + step / 10})
        if step == 10:
            run.metric(step, **{"eval/loss": 1.9})
    (finding,) = run.findings()
    assert (finding.kind, finding.evidence["explains"]) == ("overfitting", ["diverging"])


def test_one_overflow_of_the_gradient_norm_is_how_loss_scaling_works(start_run: Start) -> None:
    run = start_run()
    for step in range(30):
        run.metric(step, loss=1.0, grad_norm=math.inf if step > 27 else 1.0)
    assert run.findings() == []


def test_a_loss_that_jumps_and_stays_is_a_spike(start_run: Start) -> None:
    run = start_run()
    random.seed(2)
    for step in range(200):
        run.metric(step, loss=2.0 + random.gauss(0, 0.05))
    assert run.findings() == []
    run.metric(200, loss=9.0)
    assert run.findings() == []
    for step in range(201, 205):
        run.metric(step, loss=9.0)
    (finding,) = run.findings()
    assert (finding.kind, finding.severity) == ("diverging", "warning")
    assert finding.evidence["step"] == 200
    assert "jumped to 9" in finding.sentence


def test_waiting_for_data_is_measured_by_the_loop_itself(start_run: Start) -> None:
    run = start_run()
    for step in range(20):
        run.metric(step, step_seconds=0.5, data_seconds=0.1)
    assert run.findings() == []
    for step in range(20, 80):
        run.metric(step, step_seconds=0.5, data_seconds=0.4)
    (finding,) = run.findings()
    assert finding.kind == "data_starved"
    assert "80%" in finding.sentence


def test_idle_gpus_beside_a_busy_cpu_hint_at_data(start_run: Start) -> None:
    run = start_run()
    for step in range(20):
        run.now += 5
        run.metric(step, loss=1.0)
        run.look(gpu__0__utilization=20, cpu__utilization=99)
    (finding,) = run.findings()
    assert (finding.kind, finding.severity) == ("data_starved", "info")
    run.say("phase", phase="eval")
    assert run.findings() == []


def test_a_gpu_slowed_down_by_heat_is_named(start_run: Start) -> None:
    run = start_run(world_size=2)
    run.say("describe", rank=1, facts={"gpu/1/clock_max": 1980})
    for step in range(20):
        run.now += 5
        run.metric(step, loss=1.0)
        run.look(rank=0, gpu__0__temperature=70, gpu__0__slowed_by_heat=0)
        run.look(rank=1, gpu__0__temperature=70, gpu__0__slowed_by_heat=0, gpu__1__temperature=91,
                 gpu__1__slowed_by_heat=1, gpu__1__clock=900)  # fmt: skip
    (finding,) = run.findings()
    assert finding.kind == "throttled"
    assert finding.sentence == "GPU 1 of node1 is throttled by heat (91 °C, 900 of 1980 MHz)."


def test_gpus_that_are_slowed_down_together_are_one_finding(start_run: Start) -> None:
    run = start_run()
    for step in range(20):
        run.now += 5
        run.metric(step, loss=1.0)
        heat = {f"gpu__{index}__slowed_by_heat": 1 for index in range(8)}
        run.look(**heat, **{f"gpu__{index}__temperature": 91 for index in range(8)})
    (finding,) = run.findings()
    assert finding.sentence == "8 GPUs are throttled. GPU 0 is throttled by heat (91 °C)."
    assert [each["gpu"] for each in finding.evidence["gpus"]] == list(range(8))


def test_a_driver_that_gives_no_reasons_leaves_temperature_and_clock(start_run: Start) -> None:
    run = start_run()
    run.say("describe", facts={"gpu/0/clock_max": 1980})
    for step in range(20):
        run.now += 5
        run.metric(step, loss=1.0)
        run.look(gpu__0__temperature=90, gpu__0__clock=900, gpu__0__utilization=99)
    assert run.kinds() == ["throttled"]


def test_memory_that_grows_step_by_step_is_foreseen(start_run: Start) -> None:
    run = start_run()
    for step in range(40):
        run.now += 5
        run.metric(step, loss=1.0)
        run.look(gpu__0__memory_used=(60 + step * 0.3) * _GIB, gpu__0__memory_total=80 * _GIB)
    (finding,) = run.findings()
    assert finding.kind == "out_of_memory_soon"
    left = finding.evidence["seconds_left"]
    assert left == pytest.approx((80 - 71.7) / 0.06, rel=0.01)
    assert finding.sentence.startswith("GPU 0 runs out of memory in about 2 min 18 s")


def test_gpus_that_fill_up_together_are_one_finding_about_the_first_to_be_full(start_run: Start) -> None:
    run = start_run()
    for step in range(40):
        run.now += 5
        run.metric(step, loss=1.0)
        used = {f"gpu__{index}__memory_used": (60 + index / 10 + step * 0.3) * _GIB for index in range(8)}
        run.look(**used, **{f"gpu__{index}__memory_total": 80 * _GIB for index in range(8)})
    (finding,) = run.findings()
    assert finding.sentence.startswith("8 GPUs run out of memory soon. GPU 7 runs out of memory in about ")
    assert [each["gpu"] for each in finding.evidence["gpus"]] == list(range(8))


def test_a_gpu_that_is_full_but_does_not_grow_is_fine(start_run: Start) -> None:
    run = start_run()
    for step in range(40):
        run.now += 5
        run.metric(step, loss=1.0)
        used = 79.5 - (step % 3) * 0.2
        run.look(gpu__0__memory_used=used * _GIB, gpu__0__memory_total=80 * _GIB)
    assert run.findings() == []


def test_a_machine_without_memory_left_is_named(start_run: Start) -> None:
    run = start_run()
    run.look(ram__used=62.5 * _GIB, ram__total=64 * _GIB)
    (finding,) = run.findings()
    assert "67.1 of 68.7 GB" in finding.sentence


def test_machines_that_fill_up_together_are_one_finding(start_run: Start) -> None:
    run = start_run(world_size=3)
    for rank in range(3):
        run.look(rank=rank, ram__used=(62 + rank / 2) * _GIB, ram__total=64 * _GIB)
    (finding,) = run.findings()
    assert finding.sentence.startswith("3 machines run out of memory soon. node0 has little memory left")


def test_an_error_that_the_log_repeats_is_the_failure_and_no_finding(start_run: Start) -> None:
    run = start_run()
    message = "[Errno 28] No space left on device: 'checkpoint-20'"
    run.say("log", level="error", line="the data server does not answer")
    run.say("log", level="error", line=f"trainer: step failed\nTraceback …\nOSError: {message}")
    run.say("error", type="OSError", message=message, cause="disk_full")
    run.say("end", status="failed")
    assert [finding.sentence for finding in run.findings()] == ["the data server does not answer"]


def test_the_worst_comes_first_and_findings_are_plain_json(start_run: Start) -> None:
    import json

    run = start_run(world_size=2)
    run.look(ram__used=62.5 * _GIB, ram__total=64 * _GIB)
    run.now += 100
    run.metric(1, loss=math.nan)
    found = run.findings()
    assert [finding.severity for finding in found] == ["critical", "critical", "warning"]
    assert {finding.kind for finding in found} == {"degraded", "diverging", "out_of_memory_soon"}
    json.dumps([finding.as_dict() for finding in found], allow_nan=False)


def test_several_ranks_that_report_miss_those_that_do_not(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for rank in (0, 1):
        run.say("start", rank=rank, attempt=1, host="node", pid=rank, world_size=16)
    assert "degraded" not in run.kinds(), "processes start one after the other"
    run.now += 400
    for rank in (0, 1):
        run.say("heartbeat", rank=rank, auto=True, expect_next_in=10.0)
        run.metric(1, rank=rank, loss=1.0)
    (found,) = [finding for finding in run.findings() if finding.kind == "degraded"]
    assert found.evidence["missing"] == list(range(2, 16))
    assert "2 of 16 ranks" in found.sentence


def test_rank_0_alone_speaks_for_all(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.say("start", attempt=1, host="node", pid=1, world_size=16)
    run.now += 400
    run.say("heartbeat", auto=True, expect_next_in=10.0)
    run.metric(1, loss=1.0)
    assert "degraded" not in run.kinds()


@pytest.mark.parametrize(("slow", "found"), [(1.0, False), (2.0, True)])
def test_a_straggler_is_named(start_run: Start, slow: float, found: bool) -> None:
    run = start_run(world_size=4)
    for step in range(1, 31):
        run.now += 1
        for rank in range(4):
            run.metric(step, rank=rank, **{"train/step_seconds": slow if rank == 2 else 1.0})
    findings = [finding for finding in run.findings() if finding.kind == "straggler"]
    assert [finding.evidence["rank"] for finding in findings] == ([2] if found else [])


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda step: 10.8 + 0.05 * math.sin(step * 7.3), True),
        (lambda step: 2.0 + 8.0 / step, False),
        (lambda step: 10.8 - 0.002 * step + 0.05 * math.sin(step * 7.3), False),
    ],
)
def test_a_loss_that_does_not_fall_is_noticed(
    start_run: Start, loss: Callable[[int], float], found: bool
) -> None:
    run = start_run()
    for step in range(1, 601):
        run.now += 1
        run.metric(step, **{"train/loss": loss(step)})
    assert ("no_learning" in run.kinds()) == found
    run.say("end", status="completed")
    assert ("no_learning" in run.kinds()) == found, "also when it is over"


def test_the_lost_rank_is_the_one_that_went_without_a_word(start_run: Start) -> None:
    run = start_run(world_size=3)
    for step in range(1, 4):
        run.now += 1
        for rank in range(3):
            run.metric(step, rank=rank, loss=1.0)
    run.now += 30
    for rank in (0, 2):
        error = {"type": "RuntimeError", "message": "Connection closed by peer", "cause": "lost_rank"}
        run.say("error", rank=rank, **error)
        run.say("end", rank=rank, status="failed")
    failure = snapshot(run.reading, now=run.now)["failure"]
    assert (failure["cause"], failure["lost_ranks"]) == ("lost_rank", [1])


def test_the_rank_that_says_why_comes_before_those_that_lost_it(start_run: Start) -> None:
    run = start_run(world_size=2)
    run.say("error", rank=0, type="RuntimeError", message="Connection closed by peer", cause="lost_rank")
    run.say("end", rank=0, status="failed")
    run.now += 5
    run.say(
        "error",
        rank=1,
        type="torch.OutOfMemoryError",
        message="CUDA out of memory",
        cause="gpu_out_of_memory",
    )
    run.say("end", rank=1, status="failed")
    failure = snapshot(run.reading, now=run.now)["failure"]
    assert (failure["rank"], failure["cause"]) == (1, "gpu_out_of_memory")
