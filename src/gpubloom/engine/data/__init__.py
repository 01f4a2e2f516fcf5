"""From a path to batches of token ids: reading, tokenizing, windows, a loader that can be resumed.

Knows no model, no device and no run directory.
"""

from gpubloom.engine.data.dataset import Dataset
from gpubloom.engine.data.loader import Batch, Loader
from gpubloom.engine.data.rows import Rows, Windows
from gpubloom.engine.data.tokenizer import Tokenizer

__all__ = ["Batch", "Dataset", "Loader", "Rows", "Tokenizer", "Windows"]
