import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

CHECKPOINT = "bert-base-uncased"
dataset = load_dataset("imdb")
tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
encoded = dataset.map(lambda b: tokenizer(b["text"], truncation=True, max_length=256), batched=True)
model = AutoModelForSequenceClassification.from_pretrained(CHECKPOINT, num_labels=2)
metric = evaluate.load("accuracy")


def compute(pred):
    logits, labels = pred
    return metric.compute(predictions=np.argmax(logits, axis=-1), references=labels)


training_args = TrainingArguments("bert-imdb", per_device_train_batch_size=16, fp16=True)
Trainer(model, training_args, train_dataset=encoded["train"], eval_dataset=encoded["test"]).train()
