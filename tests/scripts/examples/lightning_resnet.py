import lightning as L
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader
from torchvision import transforms


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet50(weights=None, num_classes=1000)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


train = torchvision.datasets.ImageNet("data", transform=transforms.ToTensor())
loader = DataLoader(train, batch_size=256, shuffle=True, num_workers=8)
trainer = L.Trainer(
    accelerator="gpu",
    devices=4,
    strategy="ddp",
    precision="16-mixed",
    max_epochs=90,
    logger=TensorBoardLogger("logs"),
    callbacks=[ModelCheckpoint(dirpath="checkpoints", save_last=True)],
)
trainer.fit(Classifier(), loader, ckpt_path="last")
