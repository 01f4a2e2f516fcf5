"""Models whose family no list of ours names: admitted by structure, trained as transformers trains them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine import Dataset
from gpubloom.engine.data import Loader
from gpubloom.hub.checking import check_model
from gpubloom.plan import TrainConfig
from gpubloom.plan.families import FAMILIES
from tests.backends.runs import Run, write_examples
from tests.engine.exporting.tasks import export
from tests.errors import raises
from tests.tiny_models import make_tiny_model

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def config_of(model: Path, **fields: object) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "model": {"path": str(model), "context_length": 64},
            "data": {
                "kind": "examples",
                "train_path": str(write_examples(model.parent / "examples.jsonl")),
                "eval_fraction": 0,
            },
            "batch_size": 4,
            "epochs": 2,
            "learning_rate": 2e-3,
            "optimizer": {"weight_decay": 0.0},
            "device": "cpu",
            **fields,
        }
    )


def without_packing(config: TrainConfig) -> TrainConfig:
    return config.model_copy(update={"data": config.data.model_copy(update={"packing": False})})


def plain_losses(config: TrainConfig, steps: int) -> list[float]:
    """transformers and torch alone, on the same rows with the same schedule."""
    import transformers

    from gpubloom.engine.optimizer.schedule import Schedule

    loading: Any = transformers.AutoModelForCausalLM
    model = loading.from_pretrained(config.model.path, dtype=torch.float32, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    dataset = Dataset.open(config.data, config.context_length)
    loader = Loader(dataset.train, batch_size=config.batch_size, accumulation=1, seed=config.seed)
    schedule, found = Schedule.create(config.schedule, steps), []
    batches = (batch for _ in range(config.epochs) for batch in loader.rest_of_epoch())
    for step, batch in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = schedule.learning_rate(config.peak_learning_rate, step)
        logits = model(batch.tokens_ABT[0]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets_ABT[0].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(float(loss))
    return found


@pytest.mark.parametrize("family", ["olmo2", "granite", "cohere", "stablelm", "olmoe"])
def test_a_family_of_no_list_trains_with_the_losses_of_transformers(tmp_path: Path, family: str) -> None:
    assert family not in FAMILIES
    model = make_tiny_model(tmp_path / "model", family=family)
    report = check_model(model)
    assert report.ok, report.findings
    config = without_packing(config_of(model, method="full"))
    run = Run(tmp_path / "full", config)
    assert run.train() == "completed"
    losses = list(run.series("train/loss").values())
    assert losses == pytest.approx(plain_losses(config, len(losses)), rel=1e-4)
    by_trl = Run(tmp_path / "trl", config.model_copy(update={"backend": "trl"}))
    assert by_trl.train() == "completed"
    assert list(by_trl.series("train/loss").values()) == pytest.approx(losses, rel=1e-4)
    adapted = Run(tmp_path / "lora", config.model_copy(update={"method": "lora", "learning_rate": 1e-2}))
    assert adapted.train() == "completed"
    found = list(adapted.series("train/loss").values())
    assert found[0] == pytest.approx(losses[0], rel=1e-5)
    # Cohere scales its logits down, so it learns slowly.
    assert found[-1] < 0.97 * found[0]


@pytest.mark.parametrize("family", ["bloom", "opt"])
def test_what_the_engine_cannot_split_is_trained_by_trl(tmp_path: Path, family: str) -> None:
    model = make_tiny_model(tmp_path / "model", family=family)
    assert check_model(model).ok
    with raises(ValueError, code="unsupported_architecture", match="backend trl"):
        Run(tmp_path / "engine", config_of(model)).train()
    run = Run(tmp_path / "trl", without_packing(config_of(model, backend="trl")))
    assert run.train() == "completed"
    losses = list(run.series("train/loss").values())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", ["bloom", "opt"])
def test_a_model_whose_documents_would_see_each_other_is_not_trained_on_packed_rows(
    tmp_path: Path, family: str
) -> None:
    config = config_of(make_tiny_model(tmp_path / "model", family=family), backend="trl")
    with raises(ValueError, code="packing_not_supported", match=family):
        Run(tmp_path / "run", config).train()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_trl_has_trained_is_exported_as_one_model(tmp_path: Path, method: str) -> None:
    import peft
    import transformers

    base = make_tiny_model(tmp_path / "model", family="opt")
    run = Run(tmp_path / "run", without_packing(config_of(base, backend="trl", method=method)))
    assert run.train() == "completed"
    export(tmp_path / "export", model=str(run.folder), dtype="fp32", prompts=["What is 3?"])
    loading: Any = transformers.AutoModelForCausalLM
    exported = loading.from_pretrained(tmp_path / "export" / "model", dtype=torch.float32)
    trained = loading.from_pretrained(base if method == "lora" else run.folder / "model", dtype=torch.float32)
    if method == "lora":
        trained = peft.PeftModel.from_pretrained(trained, str(run.folder / "model"))
    tokens = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = trained(tokens).logits
        assert not torch.equal(expected, loading.from_pretrained(base, dtype=torch.float32)(tokens).logits)
        torch.testing.assert_close(exported(tokens).logits, expected, rtol=1e-4, atol=1e-4)
