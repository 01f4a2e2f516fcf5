"""`bloom plan` as a person types it: one answer, in text or JSON, and nothing is started."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpubloom.cli import plan as plan_command
from gpubloom.cli.app import app
from gpubloom.plan import Plan, detect_hardware
from tests.errors import printed

H200 = ("--machine", "H200, 125 GiB host")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("TRAIN_DATA_PATH", "EVAL_DATA_PATH", "EPOCHS", "BATCH_SIZE", "LEARNING_RATE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def bloom_plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_plan_shows_memory_by_kind_a_step_and_what_limits_it(folder: Path) -> None:
    done = bloom_plan("--shape", "7b", *H200, "--set", "batch_size=8", "--set", "memory=stream")
    assert done.exit_code == 0
    for words in (
        "7b on H200, 125 GiB host",
        "GPU memory",
        "Host memory",
        "optimizer",
        "forward",
        "tokens/s",
    ):
        assert words in done.stdout
    assert "updated by the GPU" in done.stdout
    assert "Bottleneck: " in done.stdout
    assert "Assumes 730 TFLOP/s for H200" in done.stdout
    assert list(folder.iterdir()) == []


def test_json_holds_the_plan_as_it_is_stored_with_a_run(folder: Path) -> None:
    done = bloom_plan("--shape", "llama3-8b", *H200, "--set", "method=qlora", "--json")
    answer = json.loads(done.stdout)
    assert answer["fits"] is True
    found = Plan.model_validate(answer["plan"])
    assert found.placement is not None
    assert len(found.placement.layers) == 32
    assert found.parameters == 8_030_261_248


def test_what_does_not_fit_says_so_and_shows_the_nearest_that_does(folder: Path) -> None:
    arguments = ("--shape", "130b", "--machine", "H200, 1536 GB host", "--set", "batch_size=8")
    done = bloom_plan(*arguments)
    assert done.exit_code == 1
    assert "Does not fit. The usable host memory is 1,635.3 GB" in done.stdout
    assert re.search(r"GPU memory +\S+ of 145.5 GB, fits", done.stdout)
    assert re.search(r"Host memory +1,\S+ of 1,635.3 GB, \S+ GB too much", done.stdout)
    assert "Plan with the first of them: " in done.stdout
    answer = json.loads(bloom_plan(*arguments, "--json").stdout)
    assert (answer["fits"], answer["plan"]) == (False, None)
    assert "would fit with memory.gradients twice" in answer["reason"]
    needs = answer["needs"]
    assert sum(needs["gpu"].values()) < 2 * needs["gpu"]["limit_bytes"], "the GPU is large enough"
    assert sum(needs["host"].values()) > 2 * needs["host"]["limit_bytes"], "the host is not"
    for option in answer["options"]:
        assert Plan.model_validate(option["plan"]).placement is not None
        assert option["title"] in done.stdout
    smaller, larger = (
        next(option for option in answer["options"] if found(option))
        for found in (lambda each: "model.preset" in each["changes"], lambda each: each["host_memory"])
    )
    # What is offered fits when it is taken, and a little more than that does not.
    fits = bloom_plan("--shape", smaller["changes"]["model.preset"], *arguments[2:])
    assert fits.exit_code == 0
    assert bloom_plan("--shape", "130b", "--machine", larger["machine"], *arguments[4:]).exit_code == 0
    assert 110e9 < smaller["plan"]["parameters"] < 130e9


def test_without_a_shape_it_plans_what_bloom_train_would_train(folder: Path) -> None:
    (folder / "text.txt").write_text("words " * 10_000)
    (folder / "config.json").write_text(
        '{"data": {"trainPath": "text.txt"}, "epochs": 2, "model": {"preset": "nano"}}'
    )
    done = bloom_plan("--config", "config.json", "--json", "--machine", "8 GB host, 4 cores")
    found = Plan.model_validate(json.loads(done.stdout)["plan"])
    assert (found.device, found.parameters) == ("cpu", 108_928)
    assert found.steps == 2 * 28


def test_a_model_folder_is_planned_from_its_config_alone(folder: Path) -> None:
    from gpubloom.plan import named_config

    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(named_config("qwen2.5-1.5b")))
    done = bloom_plan("--set", "model.path=model", "--set", "batch_size=8", *H200, "--json")
    found = Plan.model_validate(json.loads(done.stdout)["plan"])
    assert found.parameters == 1_543_714_304
    assert found.tokens_per_step == 8 * 1_024


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--shape", "huge"), "unknown_shape"),
        (("--machine", "H200"), "machine_without_memory"),
        (("--shape", "7b", "--set", "model.layers=3"), "invalid_option"),
        (("--machine", "64 GB host", "--measure"), "invalid_option"),
        (("--set", "batch_sise=3"), "extra_forbidden"),
        (("--set", "model.path=nowhere"), "not_a_model_folder"),
    ],
)
def test_input_that_makes_no_sense_gets_one_sentence(
    folder: Path, arguments: tuple[str, ...], code: str
) -> None:
    done = bloom_plan(*arguments)
    assert done.exit_code == 2
    assert printed(done.stderr) == [code]
    assert done.stderr.count("\n") == 1


def test_a_smaller_size_that_fits_is_proposed_as_it_was_asked_for(folder: Path) -> None:
    machine = ("--machine", "RTX 4090, 64 GB host")
    shown = bloom_plan("--shape", "130b", *machine).stdout
    found = re.search(r"--shape (\d[\d.]*b)\n", shown)
    assert found, shown
    assert bloom_plan("--shape", found[1], *machine).exit_code == 0
    (folder / "text.txt").write_text("words " * 1_000)
    shown = bloom_plan("--set", "model.preset=130b", "--set", "data.train_path=text.txt", *machine).stdout
    assert "--set model.preset=" in shown


@pytest.mark.long
def test_measuring_replaces_what_is_assumed_here_and_in_later_plans(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("BLOOM_HOME", str(folder / "home"))
    (folder / "text.txt").write_text("words " * 1_000)
    asked = ("--set", "data.train_path=text.txt", "--set", "device=cpu", "--json")
    done = bloom_plan(*asked, "--measure")
    assert done.exit_code == 0, done.stderr
    found = Plan.model_validate(json.loads(done.stdout)["plan"])
    assert not any("CPU cores" in assumption for assumption in found.assumptions)
    # Once is enough.
    assert json.loads(bloom_plan(*asked).stdout)["plan"] == json.loads(done.stdout)["plan"]


def test_measured_figures_that_cannot_be_kept_are_used_and_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_command, "measured_now", detect_hardware)
    (folder / "file").touch()
    monkeypatch.setenv("BLOOM_HOME", str(folder / "file" / "home"))
    done = bloom_plan("--shape", "7b", "--set", "device=cpu", "--measure")
    assert "not kept for later plans" in done.stderr
    assert "Set BLOOM_HOME" in done.stderr


def test_a_plan_on_a_cpu_that_was_not_measured_calls_its_times_rough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_HOME", str(folder / "home"))
    (folder / "text.txt").write_text("words " * 1_000)
    done = bloom_plan("--set", "data.train_path=text.txt", "--set", "device=cpu")
    assert "all times are rough" in " ".join(done.stdout.split())
