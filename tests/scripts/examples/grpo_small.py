# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "trl>=0.20",
#   "peft",
# ]
# ///
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

dataset = load_dataset("openai/gsm8k", "main", split="train")
training_args = GRPOConfig(output_dir="grpo", per_device_train_batch_size=8, max_steps=250, bf16=True)
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=lambda completions, **_: [float(len(c) < 200) for c in completions],
    args=training_args,
    train_dataset=dataset,
    peft_config=LoraConfig(r=8),
)
trainer.train()
