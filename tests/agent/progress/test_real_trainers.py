"""Real trainers under a real agent: what they print today is what is read."""

import sys
from importlib.util import find_spec

import pytest

from gpubloom.traincard import load_latest, read_all
from tests.agent.runs import Run

# Looked for, not imported: that takes long.
MISSING = [name for name in ("transformers", "lightning") if find_spec(name) is None]

HUGGING_FACE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        ids = torch.randint(0, 100, (16,))
        return {"input_ids": ids, "labels": ids}


shape = GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=100, n_positions=16)
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=30, logging_steps=10, eval_strategy="steps",
    eval_steps=15, use_cpu=True, report_to="none", save_strategy="no",
)
Trainer(model=GPT2LMHeadModel(shape), args=arguments, train_dataset=Data(), eval_dataset=Data()).train()
"""
LIGHTNING = """
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(80, 8))
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", enable_checkpointing=False, log_every_n_steps=5)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
"""


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("script", "total", "steps"),
    [(HUGGING_FACE, 30, [10, 20, 30]), (LIGHTNING, 30, [4, 9, 14, 19, 24, 29])],
    ids=["hugging-face", "lightning"],
)
def test_a_real_trainer_is_followed(run: Run, script: str, total: int, steps: list[int]) -> None:
    run.script(script)
    run.spec = type(run.spec)("job", run.path, 1, (sys.executable, "train.py"))
    with run.start_agent() as agent:
        assert agent.wait(280) == 0
    assert run.exit().code == 0, run.output()
    latest = load_latest(run.path)
    assert latest is not None
    assert (latest["status"], latest["step"], latest["total_steps"]) == ("completed", total, total)
    found = [
        event.step
        for event in read_all(run.path)
        if event.kind == "metric" and "train/loss" in event.fields["values"]
    ]
    assert set(steps) <= set(found)
