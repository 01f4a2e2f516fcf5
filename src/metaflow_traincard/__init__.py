"""TrainCard inside Metaflow: a live card of type `train` for every step that trains.

    from metaflow import FlowSpec, step, traincard
    from metaflow_traincard import HFTrainCardCallback, Reporter

`@traincard` on a step gives it the card; a Reporter or a callback in the step fills it. See docs/metaflow.md.
"""

from typing import TYPE_CHECKING, Any

from gpubloom.traincard import Reporter

__all__ = ["HFTrainCardCallback", "Reporter"]

if TYPE_CHECKING:
    from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback
else:

    class _Lazy(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, _callback())

    class HFTrainCardCallback(metaclass=_Lazy):
        """The callback for Trainer and every TRL trainer; imports transformers when it is made.

        Every process of a flow imports the flow's file, and with it this name; most of them train nothing.
        """

        def __new__(cls, *arguments: Any, **named: Any) -> Any:
            return _callback()(*arguments, **named)

        def __init_subclass__(cls) -> None:
            raise TypeError(
                "Subclass gpubloom.traincard.adapters.HFTrainCardCallback instead: the one of "
                "metaflow_traincard only imports it when it is needed."
            )

    def _callback() -> Any:
        from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback as Callback

        return Callback
