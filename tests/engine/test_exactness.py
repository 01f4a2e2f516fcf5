"""The engine's numbers: against a plain PyTorch loop, against recorded losses, against itself resumed."""

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gpubloom.engine import Dataset, Model
from gpubloom.engine.data import Loader
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.models import TransformerLM
from gpubloom.plan import TrainConfig
from tests.engine.runs import Run

GOLDEN = Path(__file__).parent / "golden"

VARIANTS = {
    "tied": {},
    "untied": {"model": {"preset": "nano", "context_length": 32, "tie_embeddings": False}},
    "accumulated": {"batch_size": 4, "accumulation": 2},
    "clipped": {"learning_rate": 3e-3, "optimizer": {"clip_norm": 0.1, "weight_decay": 0.3}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_those_of_a_plain_pytorch_loop(
    make_config: Callable[..., TrainConfig], make_run: Callable[..., Run], variant: str
) -> None:
    config = make_config(**VARIANTS[variant], max_steps=20)
    dataset = Dataset.open(config.data, config.context_length)
    model = TransformerLM.create(config.model.shape(dataset.vocab_size), seed=config.seed)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        weight_decay=config.optimizer.weight_decay,
        foreach=False,
    )
    batches = Loader(
        dataset.train, batch_size=config.batch_size, accumulation=config.accumulation, seed=config.seed
    ).rest_of_epoch()
    losses = []
    for step, batch in zip(range(1, 21), batches, strict=False):
        # 20 steps, of which round(0.03 · 20) = 1 warms up; down to a tenth.
        cosine = 0.5 * (1 + math.cos(math.pi * (step - 1) / 19))
        for group in optimizer.param_groups:
            group["lr"] = config.peak_learning_rate * (0.1 + 0.9 * cosine)
        optimizer.zero_grad()
        tokens_RT, targets_RT = batch.tokens_ABT.flatten(0, 1), batch.targets_ABT.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(model(tokens_RT).transpose(1, 2), targets_RT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_norm)
        optimizer.step()
        losses.append(loss.item())

    run = make_run(**VARIANTS[variant], max_steps=20)
    run.train()
    assert len(losses) == 20
    assert list(run.losses().values()) == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_those_recorded_before(make_run: Callable[..., Run], variant: str) -> None:
    run = make_run(**VARIANTS[variant], max_steps=20)
    trainer = run.train()
    evaluation = trainer.evaluate()
    assert evaluation is not None
    found = {"train": list(run.losses().values()), "eval": evaluation.loss}
    path = GOLDEN / f"{variant}.json"
    if not path.exists():
        path.write_text(json.dumps(found, indent=2) + "\n")
        pytest.fail(f"{path.name} was missing and is now recorded: look at it and commit it")
    golden = json.loads(path.read_text())
    assert found["train"] == pytest.approx(golden["train"], rel=1e-5)
    assert found["eval"] == pytest.approx(golden["eval"], rel=1e-5)


def test_two_micro_batches_give_the_gradient_of_one_batch(make_config: Callable[..., TrainConfig]) -> None:
    def losses(batch_size: int, accumulation: int) -> list[float]:
        config = make_config(batch_size=batch_size, accumulation=accumulation)
        dataset = Dataset.open(config.data, config.context_length)
        executor = move_to_devices(config, Model.open(config, vocab_size=dataset.vocab_size)).executor
        loader = Loader(dataset.train, batch_size=batch_size, accumulation=accumulation, seed=0)
        found = []
        for batch in loader.rest_of_epoch():
            found.append(float(executor.forward_backward(batch)))
            executor.optimizer_step(1e-3)
        return found

    assert losses(8, 1) == pytest.approx(losses(2, 4), rel=1e-5)


def test_bf16_keeps_fp32_weights_and_learns(make_run: Callable[..., Run]) -> None:
    run = make_run(precision="bf16", max_steps=20)
    trainer = run.train()
    assert all(store.master.dtype == torch.float32 for store in trainer.executor.stores)
    losses = list(run.losses().values())
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("stop_at", [1, 13, 30, 31, 44])
def test_a_paused_and_resumed_run_is_bit_identical(make_run: Callable[..., Run], stop_at: int) -> None:
    whole = make_run("whole", epochs=2)
    total = whole.train().total_steps
    parts = make_run("parts", epochs=2)
    assert parts.train(stop_at=stop_at).status == "paused"
    assert parts.train(resume=True).status == "completed"
    assert len(whole.losses()) == total > 44
    assert parts.losses() == whole.losses()
    assert parts.weights() == whole.weights()


@pytest.fixture
def _usual_kernels() -> Iterator[None]:
    import torch._inductor.config as compiler

    names = ("deterministic", "autotune_local_cache", "autotune_remote_cache")
    before = {name: getattr(compiler, name) for name in names}
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    yield
    for name, value in before.items():
        setattr(compiler, name, value)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = cudnn
    torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.usefixtures("_usual_kernels")
def test_a_deterministic_run_asks_for_deterministic_kernels_and_has_the_same_bits_on_a_cpu(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._inductor.config as compiler

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    plain = make_run("plain", max_steps=3)
    plain.train()
    assert not torch.are_deterministic_algorithms_enabled()
    deterministic = make_run("deterministic", max_steps=3, deterministic=True)
    deterministic.train()
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert (compiler.deterministic, compiler.autotune_local_cache) == (True, False)
    assert deterministic.losses() == plain.losses()
    assert deterministic.weights() == plain.weights()
