"""A run that is saved, and continued elsewhere, is the undisturbed run bit for bit."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpubloom.engine import Model, run_plan
from gpubloom.engine.checkpoint import Progress, read_checkpoint, start_save
from gpubloom.engine.data import Tokenizer
from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.llama_folder import hugging_face_config
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.models.transformer import LlamaBlocks
from gpubloom.plan import TokenizerConfig
from tests.engine.placements.training import (
    CLIP_NORM,
    LENGTH,
    PLACEMENTS,
    STEPS,
    Outcome,
    Trained,
    shape,
    state_of,
    train,
)
from tests.engine.runs import Run

JOURNEYS = {
    "from the device to host memory and back": ("resident, kept", "streamed whole", "resident, kept"),
    "through the link": ("link with its ends", "mixed", "cast"),
    "between mixes": ("mixed otherwise", "weights at hand, states in host memory", "mixed"),
}
# Saved before these steps.
STOPS = (0, 7, 13, STEPS)


def folder_of(trained: Trained) -> ModelFolder:
    of = shape(tied=trained.model.tied)
    model = trained.model
    settings = (
        hugging_face_config(of, None) if isinstance(model, LlamaBlocks) else model.config.to_dict()  # type: ignore[attr-defined]
    )
    described = Model(model, trained.source(), of.decoder(), settings)
    return ModelFolder(described, Tokenizer.create(TokenizerConfig(), ()), LENGTH)


def save(folder: Path, trained: Trained, executor: BlockExecutor, step: int) -> Path:
    progress = Progress(step, executor.updates, 0, {}, "", {}, executor.loss_scale)
    # Shards of about a block.
    saving = start_save(folder, folder_of(trained), executor, progress, shard_bytes=16_000)
    saving.finish()
    return saving.path


@pytest.mark.parametrize(
    ("name", "journey"),
    [
        *(("own", journey) for journey in JOURNEYS),
        *(
            (name, "through the link")
            for name in ("own tied", "qwen3", "gemma2", "gpt2", "falcon", "qwen3_moe")
        ),
    ],
)
def test_a_run_that_moves_twice_learns_the_bits_of_one_that_never_moved(
    name: str, journey: str, tmp_path: Path
) -> None:
    trained = Trained.family(name, accumulation=2 if name == "own" else 1)
    whole = trained.outcome("streamed")
    assert min(whole.norms) > CLIP_NORM
    losses: list[float] = []
    norms: list[float] = []
    executor, saved = None, None
    for placement, (first, end) in zip(JOURNEYS[journey], pairwise(STOPS), strict=True):
        executor = trained.executor(placement)
        if saved is not None:
            read_checkpoint(saved, folder_of(trained)).restore(executor)
        found = train(executor, range(first, end), trained.accumulation)
        losses, norms = losses + found[0], norms + found[1]
        saved = save(tmp_path, trained, executor, end)
    assert executor is not None
    Outcome(losses, norms, state_of(executor)).assert_same(whole, journey)


@pytest.fixture
def use_placement(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets trainers of this test place their models as one of PLACEMENTS, whatever the plan says."""
    plan = run_plan.plan

    def choose(name: str) -> None:
        def chosen(config: Any, hardware: Any, *, shape: Any) -> Any:
            found = plan(config, hardware, shape=shape)
            assert found.placement is not None
            model = Model.open(config, vocab_size=shape.vocab_size).blocks
            wanted = PLACEMENTS[name](model).model_copy(
                update={"loss_chunk_tokens": found.placement.loss_chunk_tokens}
            )
            return found.model_copy(update={"placement": wanted})

        monkeypatch.setattr(run_plan, "plan", chosen)

    return choose


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_trainer_resumes_under_another_placement_with_the_same_bits(
    make_run: Callable[..., Run], use_placement: Callable[[str], None], precision: str
) -> None:
    settings = {"max_steps": 20, "precision": precision, "batch_size": 4, "accumulation": 2}
    whole, moved = make_run("whole", **settings), make_run("moved", **settings)
    whole.train()
    use_placement("mixed")
    assert moved.train(stop_at=6).status == "paused"
    use_placement("streamed whole")
    assert moved.train(resume=True, stop_at=14).status == "paused"
    use_placement("cast")
    trainer = moved.train(resume=True)
    assert trainer.executor.placement.layers[0].weights == "cast"
    assert len(moved.losses()) == 20
    assert moved.losses() == whole.losses()
    assert moved.weights() == whole.weights()
