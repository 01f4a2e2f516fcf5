import gradio as gr
from transformers import pipeline

classify = pipeline("image-classification", model="google/vit-base-patch16-224", device=0)
gr.Interface(fn=classify, inputs="image", outputs="label").launch()
