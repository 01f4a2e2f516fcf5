"""Models as lists of blocks. They compute; they know no device placement, optimizer, data or run."""

from gpubloom.engine.models.transformer import DecoderLayer, Embedding, Head, TransformerLM

__all__ = ["DecoderLayer", "Embedding", "Head", "TransformerLM"]
