"""TrainCard inside Metaflow: a live card of type `train` for every step that trains.

    from metaflow import FlowSpec, step, traincard
    from metaflow_traincard import HFTrainCardCallback, Reporter

`@traincard` on a step gives it the card; a Reporter or a callback in the step fills it. See docs/metaflow.md.
"""

from typing import TYPE_CHECKING, Any

from gpubloom.traincard import Reporter

if TYPE_CHECKING:
    from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback

__all__ = ["HFTrainCardCallback", "Reporter"]


def __getattr__(name: str) -> Any:
    # Transformers takes seconds to import; a flow file is imported by every task, and most do not train.
    if name == "HFTrainCardCallback":
        from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback

        return HFTrainCardCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
