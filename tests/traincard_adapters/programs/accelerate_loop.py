"""An Accelerate loop that saves its own state after every epoch."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from gpubloom.traincard.adapters import TrainCardTracker


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(40, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), 4)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tracker = TrainCardTracker()
    accelerator = Accelerator(log_with=tracker, cpu=True)
    accelerator.init_trackers("project", {"lr": 1e-2})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = tracker.track(accelerator, loader, epochs=3)
    for epoch in range(3):
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"train_loss": loss}, step=tracker.step)
        accelerator.save_state(f"out/{epoch}")
    accelerator.end_training()


main()
