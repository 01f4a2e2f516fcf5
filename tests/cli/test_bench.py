"""`bloom models bench`: a real measurement of a tiny model, what is kept of it, and for which plans."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.bench import limit_seconds
from gpubloom.plan import TrainConfig, costs, detect_hardware, plan_on
from gpubloom.plan.machine_file import with_measured
from gpubloom.plan.speedups import Speedup, device_name, find_speedup, read_speedups, store_speedup

HARDWARE = detect_hardware()


def _bloom(*words: str, **environment: str) -> Any:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80", **environment})


def _measured(**changes: Any) -> Speedup:
    fields: dict[str, Any] = {
        "machine": HARDWARE.name,
        "device": device_name(HARDWARE, on_gpu=False),
        "model": "tiny",
        "parameters": 1_000_000,
        "method": "full",
        "precision": "fp32",
        "batch_size": 2,
        "context_length": 64,
        "ratio": 1.94,
        "lowest": 1.8,
        "highest": 2.0,
        "rounds": 3,
        "step_seconds": 0.1,
        "baseline_step_seconds": 0.194,
        "versions": {"peft": "1"},
        "measured_at": "2026-11-16T10:00:00Z",
    }
    return Speedup.model_validate({**fields, **changes})


@pytest.mark.long
@pytest.mark.xdist_group("frameworks")
def test_a_measurement_is_made_here_and_kept_in_the_home(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    words = [
        "--shape",
        "tiny",
        "--length",
        "16",
        "--rounds",
        "3",
        "--steps",
        "1",
        "--device",
        "cpu",
        "--json",
    ]
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = _bloom("models", "bench", *words, BLOOM_HOME=str(tmp_path), **quiet)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert 0 < found["lowest"] <= found["ratio"] <= found["highest"]
    assert (found["method"], found["rounds"], found["machine"]) == ("lora", 3, HARDWARE.name)
    assert {"torch", "peft", "transformers", "gpubloom"} <= set(found["versions"])
    assert found["baseline"] == "PEFT with checkpointing"
    (kept,) = read_speedups(tmp_path)
    assert kept.model_dump(mode="json") == found
    # Later plans know the speed of this machine.
    assert with_measured(HARDWARE, tmp_path).calibration.host_adam_bytes_per_s is not None


def test_the_limit_is_the_time_of_the_matrix_products_alone() -> None:
    machine = HARDWARE.model_copy(update={"cpu_flops": 1e9 / costs.CPU_EFFICIENCY, "cpu_bf16": False})
    found = _measured(parameters=1_000_000, batch_size=2, context_length=50, method="full")
    assert limit_seconds(found, machine, on_gpu=False) == pytest.approx(0.6)
    adapters = found.model_copy(update={"method": "lora"})
    assert limit_seconds(adapters, machine, on_gpu=False) == pytest.approx(0.4)


def test_without_peft_it_says_what_to_install_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.cli.bench._NEEDED", ("no_such_library",))
    done = _bloom("models", "bench", "--device", "cpu", BLOOM_HOME=str(tmp_path))
    assert done.exit_code == 2
    assert "error[not_installed]" in done.stderr
    assert "gpubloom[trl]" in done.stderr
    assert read_speedups(tmp_path) == []


def test_a_method_without_a_baseline_is_refused(tmp_path: Path) -> None:
    done = _bloom("models", "bench", "--method", "qlora", BLOOM_HOME=str(tmp_path))
    assert (done.exit_code, "error[invalid_option]" in done.stderr) == (2, True)


def test_a_second_measurement_of_the_same_replaces_the_first(tmp_path: Path) -> None:
    store_speedup(tmp_path, _measured())
    store_speedup(tmp_path, _measured(ratio=1.5, measured_at="2026-11-17T10:00:00Z"))
    store_speedup(tmp_path, _measured(versions={"peft": "2"}, measured_at="2026-11-18T10:00:00Z"))
    assert [each.ratio for each in read_speedups(tmp_path)] == [1.5, 1.94]
    (tmp_path / "speedups.json").write_text("{broken")
    assert read_speedups(tmp_path) == []


def _config(**changes: Any) -> TrainConfig:
    return TrainConfig.model_validate({"device": "cpu", "precision": "fp32", "processes": 1, **changes})


def test_a_plan_finds_only_what_was_measured_for_such_a_run_on_its_machine() -> None:
    config = _config()
    plan = plan_on(HARDWARE, config)
    size = plan.parameters
    near, nearer = _measured(parameters=int(size * 1.9)), _measured(parameters=int(size * 1.1))
    assert find_speedup([near, nearer], plan, config, HARDWARE) == nearer
    assert find_speedup([near], plan, config, HARDWARE) == near
    others = [
        _measured(parameters=3 * size),
        _measured(parameters=size // 3),
        _measured(parameters=size, method="lora"),
        _measured(parameters=size, precision="bf16"),
        _measured(parameters=size, device="NVIDIA H200"),
        _measured(parameters=size, machine="elsewhere"),
    ]
    assert find_speedup(others, plan, config, HARDWARE) is None
    here = _measured(parameters=size)
    assert find_speedup([here], plan, _config(processes=2), HARDWARE) is None


def test_bloom_plan_says_what_was_measured_and_the_time_without_it(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 2_000)
    words = ["plan", "--set", "device=cpu", "--set", "precision=fp32", "--set", "processes=1"]
    words += ["--set", f"data.train_path={tmp_path / 'text.txt'}"]
    home = str(tmp_path / "home")
    assert "faster than" not in _bloom(*words, BLOOM_HOME=home).stdout
    plan = json.loads(_bloom(*words, "--json", BLOOM_HOME=home).stdout)["plan"]
    assert plan["speedup"] is None
    store_speedup(Path(home), _measured(parameters=plan["parameters"]))
    shown = " ".join(_bloom(*words, BLOOM_HOME=home).stdout.split())
    assert (
        "1.9 × faster than transformers with checkpointing, measured on this machine on 2026-11-16" in shown
    )
    assert "Training time:" in shown
    assert "without." in shown
    assert "faster than" not in _bloom(*words, "--machine", "64 GB host", BLOOM_HOME=home).stdout


def test_what_was_slower_is_said_too() -> None:
    assert _measured(ratio=0.5).sentence.startswith("2.0 × slower than transformers with checkpointing")
