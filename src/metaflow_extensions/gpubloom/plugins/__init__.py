"""What GPU Bloom adds to Metaflow: the decorator `@traincard`; its card of type `train` is in `cards/`."""

STEP_DECORATORS_DESC = [("traincard", ".traincard_decorator.TrainCardDecorator")]
