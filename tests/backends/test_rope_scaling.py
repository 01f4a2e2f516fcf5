"""RoPE scaling: losses of transformers with the same rope_parameters, and exports that say so."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.exporting.layouts import merged_config, write_adapter_form, write_merged
from gpubloom.engine.pretrained_text import load_pretrained_text
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.plan import Hardware, TrainConfig, plan
from tests.backends.runs import Run
from tests.backends.test_other_families import plain_losses
from tests.errors import raises
from tests.tiny_models import make_tiny_model

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
KINDS = ["linear", "dynamic", "yarn"]
POSITIONS, LENGTH = 32, 96


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 90 tokens for a model of 32 positions."""
    folder = tmp_path_factory.mktemp("rope")
    rows = [{"text": f"Row {n}. " + "The keeper says that it is seven. " * 6} for n in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return make_tiny_model(folder / "model", context_length=POSITIONS)


def config_of(folder: Path, kind: str | None, **fields: Any) -> TrainConfig:
    data = {"kind": "examples", "train_path": str(folder.parent / "rows.jsonl"), "eval_fraction": 0}
    settings = {
        "model": {"path": str(folder), "context_length": LENGTH, "rope_scaling": kind},
        "data": {**data, "packing": False},
        "batch_size": 4,
        "epochs": 2,
        "learning_rate": 2e-3,
        "device": "cpu",
        **fields,
    }
    return TrainConfig.model_validate(settings)


def scaled_by_hand(model: Path, kind: str, folder: Path) -> Path:
    """The same weights with the scaling written into config.json, as transformers documents it."""
    import shutil

    shutil.copytree(model, folder)
    settings = json.loads((folder / "config.json").read_text())
    rope = {**settings["rope_parameters"], "rope_type": kind, "factor": 3.0}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = POSITIONS
    settings["rope_parameters"] = rope
    if kind != "dynamic":
        settings["max_position_embeddings"] = 3 * POSITIONS
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_transformers_with_the_same_scaling(
    model: Path, tmp_path: Path, kind: str
) -> None:
    run = Run(tmp_path / "run", config_of(model, kind))
    assert run.train() == "completed"
    losses = list(run.series("train/loss").values())
    by_hand = scaled_by_hand(model, kind, tmp_path / "by-hand")
    config = run.config.model_copy(
        update={"model": run.config.model.model_copy(update={"path": str(by_hand), "rope_scaling": None})}
    )
    assert losses == pytest.approx(plain_losses(config, len(losses)), rel=1e-4)
    exported = json.loads((run.folder / "model" / "config.json").read_text())
    expected = json.loads((by_hand / "config.json").read_text())
    assert exported["rope_parameters"] == expected["rope_parameters"]
    assert exported["max_position_embeddings"] == expected["max_position_embeddings"]


@pytest.mark.parametrize("backend", ["engine", "trl"])
def test_an_adapter_is_loaded_and_exported_with_its_scaling(
    model: Path, tmp_path: Path, backend: str
) -> None:
    run = Run(tmp_path / "run", config_of(model, "yarn", method="lora", backend=backend))
    assert run.train() == "completed"
    found = find_model(run.folder)
    (tmp_path / "merged").mkdir()
    write_merged(tmp_path / "merged", found, "fp32")
    rope = merged_config(found, "fp32")["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("yarn", 3.0)
    adapted = load_pretrained_text(run.folder / "model", base=model)
    merged = load_pretrained_text(tmp_path / "merged")
    assert adapted.context_length == merged.context_length == 3 * POSITIONS
    tokens = torch.arange(3, 83)[None]
    with torch.no_grad():
        torch.testing.assert_close(adapted(tokens, None), merged(tokens, None), rtol=1e-4, atol=1e-4)
    (tmp_path / "adapter").mkdir()
    (note,) = [each for each in write_adapter_form(tmp_path / "adapter", found, "fp32") if "RoPE" in each]
    assert "rope_parameters" in note
    again = load_pretrained_text(tmp_path / "adapter", base=model)
    assert again.context_length == 3 * POSITIONS


def test_trl_begins_with_the_loss_of_the_engine(model: Path, tmp_path: Path) -> None:
    first = []
    for backend in ("engine", "trl"):
        run = Run(tmp_path / backend, config_of(model, "linear", backend=backend, max_steps=1))
        assert run.train() == "completed"
        first.append(run.series("train/loss")[1])
    assert first[0] == pytest.approx(first[1], rel=1e-5)


def test_a_context_beyond_the_model_needs_a_scaling_that_reaches(model: Path, tmp_path: Path) -> None:
    machine = Hardware.parse("H200, 125 GiB host, 16 cores")
    with raises(ValueError, code="context_too_long", match="model.rope_scaling"):
        plan(config_of(model, None), machine)
    for kind in KINDS:
        plan(config_of(model, kind), machine)
    short = {"path": str(model), "context_length": LENGTH, "rope_scaling": "yarn", "rope_factor": 2.0}
    with raises(ValueError, code="context_too_long", match="rope_factor to 3"):
        plan(config_of(model, None, model=short), machine)
    within = {"path": str(model), "context_length": POSITIONS, "rope_scaling": "yarn"}
    with raises(ValueError, code="rope_scaling_not_needed"):
        plan(config_of(model, None, model=within), machine)
    scaled = scaled_by_hand(model, "yarn", tmp_path / "scaled")
    again = {"path": str(scaled), "context_length": 200, "rope_scaling": "yarn"}
    with raises(ValueError, code="rope_scaling_unsupported", match="already"):
        plan(config_of(model, None, model=again), machine)
