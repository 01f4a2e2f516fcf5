"""A hand-written loop that prints, logs and evaluates."""

import logging

import torch
from torch.utils.data import DataLoader, TensorDataset

from gpubloom.traincard import Reporter


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    inputs = torch.randn(40, 8)
    targets = inputs.sum(1, keepdim=True)
    loader = DataLoader(TensorDataset(inputs, targets), 4)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with Reporter() as reporter:
        reporter.config({"lr": 1e-2}, "settings")
        state = {"model": model, "optimizer": optimizer}
        track = reporter.track(loader, epochs=3, optimizer=optimizer, state=state)
        for epoch in range(3):
            for x, y in track:
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                track.report(loss=loss)
            print("epoch", epoch)
            logging.info("logged %d", epoch)
            with track.evaluating() as found:
                found["loss"] = torch.nn.functional.mse_loss(model(inputs), targets)


main()
