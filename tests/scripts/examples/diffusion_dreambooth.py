import argparse

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel, StableDiffusionPipeline
from transformers import CLIPTextModel, CLIPTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--pretrained_model_name_or_path", default="stabilityai/stable-diffusion-2-1")
parser.add_argument("--resolution", type=int, default=768)
parser.add_argument("--train_batch_size", type=int, default=1)
parser.add_argument("--max_train_steps", type=int, default=800)
parser.add_argument("--output_dir", default="dreambooth")
args = parser.parse_args()

accelerator = Accelerator(mixed_precision="fp16")
unet = UNet2DConditionModel.from_pretrained(args.pretrained_model_name_or_path, subfolder="unet")
unet.enable_gradient_checkpointing()
noise_scheduler = DDPMScheduler.from_pretrained(args.pretrained_model_name_or_path, subfolder="scheduler")
optimizer = torch.optim.AdamW(unet.parameters(), lr=5e-6)
global_step = 0
while global_step < args.max_train_steps:
    loss = step(unet)
    accelerator.backward(loss)
    optimizer.step()
    global_step += 1
StableDiffusionPipeline.from_pretrained(args.pretrained_model_name_or_path, unet=unet).save_pretrained(args.output_dir)
