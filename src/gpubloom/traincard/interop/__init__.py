"""TrainCard among other tools: a W&B-style module, TensorBoard's files, and OpenMetrics text."""

from gpubloom.traincard.interop.openmetrics import openmetrics_text, write_openmetrics
from gpubloom.traincard.interop.tensorboard import export_tensorboard, import_tensorboard

__all__ = ["export_tensorboard", "import_tensorboard", "openmetrics_text", "write_openmetrics"]
