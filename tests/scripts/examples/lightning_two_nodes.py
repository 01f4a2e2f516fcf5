import pytorch_lightning as pl
from pytorch_lightning.strategies import FSDPStrategy
from transformers import AutoModelForCausalLM
from torch.utils.data import DataLoader


class Tuner(pl.LightningModule):
    def configure_model(self):
        self.model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf")

    def training_step(self, batch, _):
        return self.model(**batch).loss


loader = DataLoader(dataset, batch_size=1)
trainer = pl.Trainer(
    num_nodes=2, devices=8, accelerator="gpu", strategy=FSDPStrategy(), precision="bf16-true", max_steps=2000
)
trainer.fit(Tuner(), loader)
