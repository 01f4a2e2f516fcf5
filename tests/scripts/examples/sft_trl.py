from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

dataset = load_dataset("tatsu-lab/alpaca", split="train")
config = SFTConfig(
    output_dir="qwen-sft",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    max_length=2048,
    max_steps=1000,
    bf16=True,
    gradient_checkpointing=True,
)
trainer = SFTTrainer(model="Qwen/Qwen2.5-1.5B", args=config, train_dataset=dataset)
trainer.train()
trainer.save_model("qwen-sft/final")
