import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "mistralai/Mistral-7B-Instruct-v0.2"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).to("cuda")
model.eval()
prompt = tokenizer("The tallest mountain is", return_tensors="pt").to("cuda")
with torch.no_grad():
    print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50)[0]))
