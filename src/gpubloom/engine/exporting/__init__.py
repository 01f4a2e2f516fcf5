"""Exporting: a trained model in the form that others read, and a check that it still answers as before.

    weights = ExportWeights.of(found)      # weights.py: tensors by name, an adapter's changes added
    write_merged(folder, found, "bf16")    # layouts.py: Hugging Face's layout; write_adapter_form: PEFT's
    write_gguf(path, found, "fp16")        # gguf_file.py: for llama.cpp
    ask(model, speech, prompts)            # replaying.py: the same questions before and after

Never a second copy of a model in memory: a block at a time is read, changed, cast and written.
"""
