from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

model_name = "gpt2-large"
tokenizer = AutoTokenizer.from_pretrained(model_name)
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(model_name)
raw = load_dataset("wikitext", "wikitext-2-raw-v1")


def tokenize(batch):
    return tokenizer(batch["text"], truncation=True, max_length=512)


data = raw.map(tokenize, batched=True, remove_columns=["text"])
args = TrainingArguments(
    output_dir="gpt2-wikitext",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    num_train_epochs=2,
    learning_rate=5e-5,
    bf16=True,
    logging_steps=10,
    save_steps=500,
    report_to=["tensorboard", "wandb"],
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train(resume_from_checkpoint=True)
