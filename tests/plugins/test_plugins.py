"""One plug-in of each kind works as documented; one that is wrong is named in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.datasets import NotADataset, Source, inspect
from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.errors import InputError
from gpubloom.plugins import PluginProblem
from tests.engine.runs import Run
from tests.errors import raises
from tests.plugins.conftest import Install

MakeRun = Callable[..., Run]
CUSTOM = {"preset": "nano", "context_length": 32, "architecture": "convolutions", "options": {"width": 3}}


@pytest.mark.usefixtures("examples")
def test_a_reader_opens_files_of_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "faq.ini"
    path.write_text("".join(f"[{n}]\nprompt = Who is {n}?\ncompletion = Number {n}.\n" for n in range(5)))
    source = Source.open(path)
    rows = list(source.rows())
    assert [row.values for row in rows][1] == {"prompt": "Who is 1?", "completion": "Number 1."}
    assert inspect(source).examples == 5
    later = next(iter(source.rows(start=type(source.start)(4, 1, 3))))
    assert later.number == 4
    assert later.values == rows[3].values


def test_a_reader_that_fails_is_named_with_the_row(tmp_path: Path, install: Install) -> None:
    code = "def read(path):\n    yield {'text': 'a'}\n    yield 7\n    raise OSError('the tape tore')\n"
    install("tapes", {"dataset_readers": {"tape": "tapes:read"}}, tapes=code)
    (tmp_path / "a.tape").write_text("x")
    rows = Source.open(tmp_path / "a.tape").rows()
    assert next(rows).values == {"text": "a"}
    assert next(rows).problem == "is a number, not a mapping of columns to values"
    with raises(NotADataset, code="plugin_failed", match=r"'tape' from package tapes .*row 3 .*tape tore"):
        next(rows)


@pytest.mark.usefixtures("examples")
def test_an_architecture_learns_and_is_saved_like_any_other(make_run: MakeRun) -> None:
    run = make_run(model=CUSTOM, max_steps=30, learning_rate=1e-2, checkpoint={"every_steps": 10})
    run.train()
    losses = list(run.losses().values())
    assert losses[-1] < losses[0] - 0.5
    assert [path.name[-2:] for path in list_checkpoints(run.folder / "checkpoints")][-1] == "30"
    settings = json.loads((run.folder / "model/config.json").read_text())
    assert (settings["architecture"], settings["options"]) == ("convolutions", {"width": 3})
    with raises(InputError, code="unsupported_architecture", match="convolutions"):
        find_model(run.folder)


@pytest.mark.usefixtures("examples")
def test_first_weights_depend_on_the_seed_only(make_run: MakeRun) -> None:
    torch.manual_seed(1)
    one = make_run("one", model=CUSTOM, max_steps=2)
    one.train()
    torch.manual_seed(2)
    two = make_run("two", model=CUSTOM, max_steps=2)
    two.train()
    assert one.losses() == two.losses()


@pytest.mark.parametrize(
    ("source", "code", "name"),
    [
        ("raise RuntimeError('no luck')", "plugin_failed", "RuntimeError: no luck"),
        ("def make(shape, options): return 1 / 0", "plugin_failed", "ZeroDivisionError"),
        ("make = 5", "plugin_invalid", "odds"),
    ],
)
def test_an_architecture_that_does_not_fit_is_named_and_nothing_is_written(
    install: Install,
    make_run: MakeRun,
    source: str,
    code: str,
    name: str,
) -> None:
    install("odds", {"architectures": {"odd": "odds:make"}}, odds=source)
    run = make_run(model={"preset": "nano", "context_length": 32, "architecture": "odd"})
    with raises(PluginProblem, code=code, match=name):
        run.train()
    assert not (run.folder / "checkpoints").exists()


def test_sizes_are_checked_before_training(install: Install, make_run: MakeRun) -> None:
    code = """
from torch import nn
class Wide:
    def __init__(self, shape, options): self.shape = shape
    def embedding(self): return nn.Embedding(self.shape.vocab_size, self.shape.hidden_size)
    def layer(self, index): return nn.Linear(self.shape.hidden_size, self.shape.hidden_size + 1)
    def head(self): return nn.Linear(self.shape.hidden_size, self.shape.vocab_size)
"""
    install("wide", {"architectures": {"wide": "wide:Wide"}}, wide=code)
    run = make_run(model={"preset": "nano", "context_length": 32, "architecture": "wide"})
    with raises(PluginProblem, code="plugin_invalid", match=r"'wide' .*layers\.0"):
        run.train()


def test_an_unknown_name_says_what_there_is(install: Install, make_run: MakeRun) -> None:
    install("some", {"callbacks": {"loud": "some:Loud"}}, some="class Loud: ...")
    with raises(PluginProblem, code="plugin_not_found", match="'quiet'.*loud"):
        make_run(callbacks=["quiet"]).train()
    with raises(PluginProblem, code="plugin_failed"):
        make_run("other", callbacks=["loud"]).train()


@pytest.mark.usefixtures("examples")
def test_a_callback_can_end_the_training_which_is_then_complete(make_run: MakeRun) -> None:
    run = make_run(callbacks=["patience"], learning_rate=1e-9, max_steps=40, eval={"every_steps": 2})
    trainer = run.train()
    assert trainer.status == "completed"
    assert trainer.step < 40
    assert (run.folder / "model" / "config.json").is_file()
    assert any("stops the training" in said for said in messages(run))


def test_a_callback_that_raises_is_told_of_once_and_the_training_goes_on(
    install: Install,
    make_run: MakeRun,
) -> None:
    code = """
class Loud:
    def __init__(self, config): self.seen = []
    def on_start(self, total): self.seen.append(total)
    def on_step(self, step, metrics):
        assert metrics["train/loss"] > 0
        if step == 3: raise KeyError("lost")
"""
    install("loud", {"callbacks": {"loud": "loud:Loud"}}, loud=code)
    run = make_run(callbacks=["loud"], max_steps=8)
    assert run.train().status == "completed"
    told = [said for said in messages(run) if "'loud' from package loud failed in on_step" in said]
    assert len(told) == 1


def messages(run: Run) -> list[Any]:
    return [event["line"] for event in run.events("log")]
