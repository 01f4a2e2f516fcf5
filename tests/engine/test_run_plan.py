"""The plan that a run trains by, on a GPU that is not here, and what plan.json keeps for the next attempt."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.engine import Model, run_plan
from gpubloom.engine.parallel import ALONE
from gpubloom.engine.run_plan import RunPlan, plan_run
from gpubloom.plan import Calibration, Hardware, TrainConfig
from gpubloom.plan.placement import BlockPlacement

MakeConfig = Callable[..., TrainConfig]
MACHINE = Hardware.parse("H200, 125 GB host, 16 cores")
SMALL = {"preset": "125m", "context_length": 1_024}


def on_gpu(
    config: TrainConfig, steps: int | None, run_dir: Path | None = None, machine: Hardware = MACHINE
) -> RunPlan:
    return plan_run(
        config,
        machine,
        Model.open(config, vocab_size=257),
        steps=steps,
        group=ALONE,
        run_dir=run_dir,
        on_gpu=True,
        can_compile=True,
    )


def test_a_short_run_on_a_gpu_is_not_compiled(make_config: MakeConfig) -> None:
    found = on_gpu(make_config(device="auto"), 20)
    assert (found.config.compile, found.first_compiled_step) == ("off", 0)


def test_a_long_run_on_a_gpu_begins_uncompiled(make_config: MakeConfig) -> None:
    found = on_gpu(make_config(device="auto", model=SMALL), 100_000)
    assert found.config.compile == "off", "its first steps must fit into memory"
    assert found.first_compiled_step > 1


def test_a_run_of_unknown_length_is_compiled_before_its_first_step(make_config: MakeConfig) -> None:
    found = on_gpu(make_config(device="auto"), None)
    assert (found.config.compile, found.first_compiled_step) == ("auto", 1)


def test_a_run_whose_placement_compiling_would_change_is_compiled_before_its_first_step(
    make_config: MakeConfig,
) -> None:
    """Uncompiled layers keep more, so fewer of them could keep their activations."""
    config = make_config(device="auto", batch_size=64, model={"preset": "3b", "context_length": 1_024})
    assert on_gpu(config, 100_000).first_compiled_step == 1


def test_programs_of_an_earlier_run_are_used_from_the_first_step_on(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "programs_are_kept", lambda job: True)
    config = make_config(device="auto", model=SMALL)
    assert on_gpu(config, 100_000).first_compiled_step == 1


def test_a_deterministic_run_never_depends_on_what_is_compiled_already(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(device="auto", model=SMALL, deterministic=True)
    first = on_gpu(config, 100_000)
    monkeypatch.setattr(run_plan, "programs_are_kept", lambda job: True)
    assert on_gpu(config, 100_000) == first
    assert first.first_compiled_step == 1


def test_a_resumed_run_keeps_the_first_compiled_step_of_its_first_attempt(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(device="auto", model=SMALL)
    first = on_gpu(config, 100_000, tmp_path)
    assert first.first_compiled_step > 1
    assert on_gpu(config, 1_000_000, tmp_path) == first
    (tmp_path / "plan.json").write_text('{"compiled_from_step": 0}')
    assert on_gpu(config, 100_000, tmp_path).first_compiled_step == 0


def test_nothing_is_compiled_for_a_run_that_ends_before_its_first_compiled_step(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(device="auto", model=SMALL)
    (tmp_path / "plan.json").write_text('{"compiled_from_step": 30}')
    found = on_gpu(config, 29, tmp_path)
    assert (found.config.compile, found.first_compiled_step) == ("off", 0)
    assert on_gpu(config, 30, tmp_path).first_compiled_step == 30, "a resume may have more steps"


def test_a_short_run_that_gets_many_more_steps_is_compiled_after_all(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(device="auto", model=SMALL)
    assert on_gpu(config, 20, tmp_path).first_compiled_step == 0
    assert on_gpu(config, 20, tmp_path).first_compiled_step == 0
    longer = on_gpu(config, 100_000, tmp_path)
    assert longer.first_compiled_step > 1
    assert on_gpu(config, 100_000, tmp_path) == longer


def test_a_deterministic_run_that_gets_more_steps_stays_uncompiled(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(device="auto", model=SMALL, deterministic=True)
    assert on_gpu(config, 20, tmp_path).first_compiled_step == 0
    assert on_gpu(config, 100_000, tmp_path).first_compiled_step == 0


@pytest.mark.parametrize(
    "stored",
    [
        '{"device": "cpu", "compiled_from_step": 3}',
        '{"compiled_from_step": -5}',
        '{"compiled_from_step": true}',
        "[]",
        '{"vers',
        "",
    ],
)
def test_a_plan_that_says_nothing_about_this_run_is_made_anew(
    make_config: MakeConfig, tmp_path: Path, stored: str
) -> None:
    config = make_config(device="auto", model=SMALL)
    (tmp_path / "plan.json").write_text(stored)
    found = on_gpu(config, 100_000, tmp_path)
    assert found == on_gpu(config, 100_000)
    kept = json.loads((tmp_path / "plan.json").read_text())
    assert kept["compiled_from_step"] == found.first_compiled_step


STREAMED = {"mode": "stream"}
# The CPU of one machine updates faster than its link carries; that of the other does not.
FAST, SLOW = (
    MACHINE.model_copy(update={"calibration": Calibration(host_adam_bytes_per_s=rate)})
    for rate in (4e11, 2e9)
)


def states(found: RunPlan) -> list[str]:
    assert found.plan.placement is not None
    return [layer.state for layer in found.plan.placement.layers]


def test_a_deterministic_run_keeps_its_placement_when_other_speeds_are_measured(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(device="auto", model=SMALL, memory=STREAMED, deterministic=True)
    first = on_gpu(config, 10, tmp_path, FAST)
    assert states(on_gpu(config, 10, None, SLOW)) != states(first)
    assert states(on_gpu(config, 10, tmp_path, SLOW)) == states(first)
    usual = config.model_copy(update={"deterministic": False})
    assert states(on_gpu(usual, 10, tmp_path, SLOW)) != states(first)


def test_a_kept_placement_gives_way_where_it_does_not_fit(make_config: MakeConfig, tmp_path: Path) -> None:
    """Host memory counts too: there the layers of a smaller machine would end for memory."""
    config = make_config(
        device="auto", model={"preset": "3b", "context_length": 1_024}, memory=STREAMED, deterministic=True
    )
    first = on_gpu(config, 10, tmp_path)
    assert first.plan.host is not None
    small = Hardware.parse("H200, 24 GB host, 16 cores")
    auto = config.model_copy(update={"memory": config.memory.model_copy(update={"mode": "auto"})})
    found = on_gpu(auto, 10, tmp_path, small)
    assert found.plan.host is not None
    assert found.plan.host.total <= found.plan.host.limit_bytes < first.plan.host.total


def test_a_deterministic_sharded_run_stays_sharded(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(
        device="auto", model=SMALL, deterministic=True, executor="sharded", processes=2, compile="off"
    )
    for _ in range(2):
        assert on_gpu(config, 10, tmp_path).plan.executor == "sharded"


def test_a_placement_of_another_model_is_not_kept(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(device="auto", model=SMALL, deterministic=True)
    on_gpu(config, 10, tmp_path)
    kept = json.loads((tmp_path / "plan.json").read_text())
    kept["placement"]["layers"] = [{"layers": "0-1", **BlockPlacement().model_dump()}]
    (tmp_path / "plan.json").write_text(json.dumps(kept))
    assert on_gpu(config, 10, tmp_path) == on_gpu(config, 10)
