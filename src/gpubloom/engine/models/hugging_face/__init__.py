"""Models of transformers as blocks. Importing this loads transformers only when a model is made."""

from gpubloom.engine.models.hugging_face.blocks import HuggingFaceBlocks
from gpubloom.engine.models.hugging_face.opening import open_model

__all__ = ["HuggingFaceBlocks", "open_model"]
