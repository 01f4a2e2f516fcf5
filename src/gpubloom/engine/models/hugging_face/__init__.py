"""Models of transformers as blocks. Importing this loads transformers only when a model is made."""

from gpubloom.engine.models.hugging_face.blocks import HuggingFaceBlocks, open_model, read_model_config

__all__ = ["HuggingFaceBlocks", "open_model", "read_model_config"]
