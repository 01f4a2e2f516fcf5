"""Exporting: a trained model in the form that others read, and a check that it still answers as before.

    weights = ExportWeights.of(found)      # layouts.py: tensors by name, an adapter's changes added
    write_merged(folder, found, "bf16")    # layouts.py: Hugging Face's layout; write_adapter_form: PEFT's
    write_gguf(path, found, "fp16")        # gguf.py: for llama.cpp
    answers_before(...), answers_after(...)  # replaying.py: the same prompts before and after

Never a second copy of a model in memory: a block at a time is read, changed, cast and written.
"""
