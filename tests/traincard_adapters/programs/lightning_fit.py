"""Lightning with a schedule, a LearningRateMonitor and its own checkpoints."""

from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from torch.utils.data import DataLoader, TensorDataset

from gpubloom.traincard.adapters import LightningTrainCardCallback


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(40, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    trainer = lightning.Trainer(
        max_epochs=3,
        log_every_n_steps=1,
        accelerator="cpu",
        callbacks=[LightningTrainCardCallback(), LearningRateMonitor()],
        default_root_dir="out",
    )
    trainer.fit(Regression(), DataLoader(data, 4), DataLoader(data, 8))


main()
