"""On a CPU a run that asks for compiled layers begins without them, and switches at the planned step."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from gpubloom.engine import run_plan
from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.executors.blocks import BlockExecutor, background_compile
from gpubloom.engine.model import Model
from gpubloom.plan import TrainConfig, costs
from tests.engine.runs import Run, read_events, read_losses
from tests.tiny_models import make_tiny_model

MakeConfig = Callable[..., TrainConfig]
VOCABULARY = 257
LEARNING_RATE = 1e-3
REASON = "no C++ compiler is installed"
_READS = "import sys, pathlib, time; sys.stdin.buffer.read(); print('compiled in 1.0')"


@contextmanager
def _stepping(config: TrainConfig, said: list[str]) -> Iterator[Callable[[int], float]]:
    on_devices = move_to_devices(config, Model.open(config, vocab_size=VOCABULARY), say=said.append)
    assert not on_devices.compiled, "steps would wait for the compiler"

    def step(number: int) -> float:
        random = torch.Generator().manual_seed(number)
        rows = torch.randint(
            0, VOCABULARY, (1, config.batch_size, config.context_length + 1), generator=random
        )
        loss = float(on_devices.executor.forward_backward(Batch(rows[..., :-1], rows[..., 1:])))
        on_devices.executor.optimizer_step(LEARNING_RATE)
        return loss

    yield step
    on_devices.executor.close()


@pytest.fixture
def switched_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The updates at which an executor switched; what is compiled is replaced by the same uncompiled."""
    found: list[int] = []
    use = BlockExecutor._use_functions

    def record(executor: BlockExecutor, *, compiled: bool) -> None:
        if compiled:
            found.append(executor.updates + 1)
        use(executor, compiled=False)

    monkeypatch.setattr(BlockExecutor, "_use_functions", record)
    monkeypatch.setattr(background_compile, "_PROGRAM", _READS)
    return found


def _choose_step(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(run_plan, "compiled_from_step", lambda *_, **__: step)


def test_a_run_switches_at_its_planned_step_however_early_the_compiler_is_done(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, switched_at: list[int]
) -> None:
    _choose_step(monkeypatch, 4)
    said: list[str] = []
    with _stepping(make_config(compile="on"), said) as step:
        for number in range(6):
            step(number)
    assert switched_at == [4]
    assert said[-1].startswith("the layers are compiled from update 4 on, as planned, ")


def test_a_run_waits_for_a_compiler_that_is_late(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, switched_at: list[int], tmp_path: Path
) -> None:
    _choose_step(monkeypatch, 2)
    go = tmp_path / "go"
    loop = f"{_READS}\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    monkeypatch.setattr(background_compile, "_PROGRAM", loop)
    waits = threading.Event()

    class Sentences(list[str]):
        def append(self, sentence: str) -> None:
            super().append(sentence)
            waits.set()

    said = Sentences()
    with _stepping(make_config(compile="on"), said) as step:
        step(0)
        second = threading.Thread(target=step, args=(1,))
        second.start()
        assert waits.wait(60)
        assert said == ["update 2 waits until the layers are compiled"]
        assert switched_at == []
        go.touch()
        second.join()
    assert switched_at == [2]


def test_the_step_is_written_into_the_plan_and_kept_by_every_resume(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, switched_at: list[int]
) -> None:
    run = make_run(compile="on", max_steps=8, checkpoint={"every_steps": 1})
    _choose_step(monkeypatch, 4)
    run.train(stop_at=2)
    assert json.loads((run.folder / "plan.json").read_text())["compiled_from_step"] == 4
    # The next attempts are on a machine for which another step would have been chosen.
    _choose_step(monkeypatch, 7)
    run.train(resume=True, stop_at=5)
    assert switched_at == [4]
    run.train(resume=True)
    assert switched_at == [4, 6], "what is resumed behind that step is compiled from its first step on"
    assert json.loads((run.folder / "plan.json").read_text())["compiled_from_step"] == 4


def test_a_plan_that_came_with_the_run_counts(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, switched_at: list[int]
) -> None:
    _choose_step(monkeypatch, 4)
    run = make_run(compile="on", max_steps=4)
    run.folder.mkdir()
    (run.folder / "plan.json").write_text('{"version": 1, "compiled_from_step": 3, "steps": 4}')
    run.train()
    assert switched_at == [3]
    assert json.loads((run.folder / "plan.json").read_text()) == {
        "version": 1,
        "compiled_from_step": 3,
        "steps": 4,
    }


def test_where_nothing_can_be_compiled_training_goes_on_and_says_why(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"import sys; sys.stdin.buffer.read(); sys.stdout.write({REASON!r}); sys.exit(3)"
    monkeypatch.setattr(background_compile, "_PROGRAM", program)
    said: list[str] = []
    deadline, number = time.monotonic() + 60, 0
    with (
        _stepping(make_config(compile="on"), said) as step,
        _stepping(make_config(compile="off"), []) as plain,
    ):
        while not said and time.monotonic() < deadline:
            assert step(number) == plain(number)
            number += 1
        assert said == [f"the layers are not compiled and run slower: {REASON}"]
        assert [step(number + more) for more in range(3)] == [plain(number + more) for more in range(3)]
    assert len(said) == 1


def test_a_compiler_that_is_ended_from_outside_is_replaced_at_the_planned_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, switched_at: list[int]
) -> None:
    """As by the kernel, for memory. Every process of a run switches at the same step."""
    _choose_step(monkeypatch, 3)
    monkeypatch.setattr(background_compile, "_PROGRAM", "import os; os.kill(os.getpid(), 9)")
    said: list[str] = []
    with _stepping(make_config(compile="on"), said) as step:
        for number in range(4):
            step(number)
    assert switched_at == [3]
    # On a busy machine the process may not have ended before.
    waits = ["update 3 waits until the layers are compiled"] if len(said) == 2 else []
    assert said == [*waits, "the process that compiles ended with exit status -9; update 3 compiles instead"]


def test_the_compiler_is_imported_beside_the_steps_before_the_switch(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, switched_at: list[int], tmp_path: Path
) -> None:
    _choose_step(monkeypatch, 9)
    modules = _write_modules(monkeypatch, tmp_path, "first_part", "second_part")
    with _stepping(make_config(compile="on"), []) as step:
        for number in range(8):
            step(number)
        assert switched_at == []
        (tmp_path / "go").touch()
        step(8)
    assert switched_at == [9]
    assert modules() == {"first_part": "import-compiler", "second_part": "import-compiler"}


def test_a_run_that_ends_before_the_switch_imports_no_more(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, switched_at: list[int], tmp_path: Path
) -> None:
    _choose_step(monkeypatch, 1000)
    modules = _write_modules(monkeypatch, tmp_path, "early_part", "late_part")
    with _stepping(make_config(compile="on"), []) as step:
        for number in range(8):
            step(number)
    (tmp_path / "go").touch()
    for thread in threading.enumerate():
        if thread.name == "import-compiler":
            thread.join()
    assert switched_at == []
    assert modules() == {"early_part": "import-compiler"}


def _write_modules(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str
) -> Callable[[], dict[str, str]]:
    """Modules in place of the compiler's, which wait for the file `go`; who has imported them."""
    for name in names:
        (folder / f"{name}.py").write_text(
            "import pathlib, threading, time\n"
            f"while not pathlib.Path({str(folder / 'go')!r}).exists(): time.sleep(0.01)\n"
            "BY = threading.current_thread().name\n"
        )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(background_compile, "_COMPILER_MODULES", names)
    return lambda: {name: sys.modules[name].BY for name in names if name in sys.modules}


# torch's compiler warns about torch's own scripts.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_compiled_layers_take_over_in_the_middle_of_a_run_and_change_no_more_than_rounding(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "CPU_COMPILE_SECONDS", 0.02)
    said: list[str] = []
    number = 0
    with (
        _stepping(make_config(compile="on"), said) as step,
        _stepping(make_config(compile="off"), []) as plain,
    ):
        while not any("are compiled from" in each for each in said):
            loss, expected = step(number), plain(number)
            assert loss == (expected if not said else pytest.approx(expected, rel=1e-5))
            number += 1
        assert number > 1, "the first steps waited"
        assert said[-1].startswith(f"the layers are compiled from update {number} on, ")
        # Each update carries the rounding of those before it on: 6e-5 was seen after many uncompiled steps.
        for more in range(number + 1, number + 20):
            assert step(more) == pytest.approx(plain(more), rel=2e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_a_pretrained_model_with_adapters_switches_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process opens the model by the config: modules of transformers cannot be sent to it."""
    monkeypatch.setattr(costs, "CPU_COMPILE_SECONDS", 0.001)
    model = make_tiny_model(tmp_path / "model", family="qwen2")
    pair = {"prompt": "What colour is the sky?", "completion": "Blue, as a rule."}
    (tmp_path / "data.jsonl").write_text((json.dumps(pair) + "\n") * 32, encoding="utf-8")
    fields = {
        "device": "cpu",
        "method": "lora",
        "lora": {"dropout": 0.1},
        "batch_size": 4,
        "max_steps": 6,
        "model": {"path": str(model), "context_length": 64},
        "data": {"kind": "examples", "train_path": str(tmp_path / "data.jsonl"), "eval_fraction": 0},
    }
    losses = {}
    for compiled in ("on", "off"):
        run = Run(tmp_path / compiled, TrainConfig.model_validate(fields | {"compile": compiled}))
        run.train()
        losses[compiled] = read_losses(run.folder)
    log = "\n".join(str(event) for event in read_events(tmp_path / "on", "log"))
    assert "the layers are compiled from update 2 on, as planned" in log
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-4)
