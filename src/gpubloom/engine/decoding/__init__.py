"""Decoding: many answers of one model advance together, each token of each in one step.

    kv_blocks.py      keys and values in blocks, shared by sequences that begin alike
    llama_decoder.py  the Llama architecture over such blocks; operations.py in torch, kernels.py in Triton
    sampling.py       the choice of tokens, on the device
    decode_batch.py   the rows of a step; on a GPU a CUDA graph
    batcher.py        requests that join and leave

Knows nothing of text, files or HTTP.
"""
