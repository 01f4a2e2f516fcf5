"""Tensors on disk: safetensors files that are streamed to and from the blocks, never held as a whole."""
