"""The trainer: models, data, executors, checkpoints. Torch lives here and nowhere below.

It is told what to do by a TrainConfig and a run directory, and says what happens through traincard's
Reporter. It knows no server, no provider and no command line.
"""

from gpubloom.engine.data import Dataset
from gpubloom.engine.model import Model
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.session import training_session
from gpubloom.engine.trainer import Trainer

__all__ = ["Dataset", "Model", "Trainer", "TransformerLM", "training_session"]
