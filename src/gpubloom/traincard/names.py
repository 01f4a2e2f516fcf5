"""One name for one series.

People report `loss`, `train/loss`, `train_loss` or `loss` with a split tag and mean the same curve. What is
stored is what was given; every reader brings names to one form here, so that charts and tables agree.
"""

from collections.abc import Mapping
from functools import lru_cache

_SPLITS = {
    "train": "train",
    "eval": "eval",
    "val": "eval",
    "valid": "eval",
    "validation": "eval",
    "test": "test",
}
# Not "valid_": `valid_tokens` is a count, not a split.
_SPLITS_BEFORE_UNDERSCORE = ("train", "eval", "val", "test")
_OTHER_WORDS = {"lr": "learning_rate"}


def series_name(name: str, tags: Mapping[str, object] | None = None) -> str:
    """The form in which readers know a reported name: `train/loss`, `eval/loss`, `train/loss{expert=3}`."""
    if not tags:
        return _series_name(name, ())
    return _series_name(name, tuple(sorted((key, str(value)) for key, value in tags.items())))


@lru_cache(maxsize=4096)
def _series_name(name: str, tags: tuple[tuple[str, str], ...]) -> str:
    given = dict(tags)
    tagged_split = given.pop("split", None)
    split, base = _split_and_base(name)
    if split is None:
        if tagged_split is not None:
            split = _SPLITS.get(tagged_split, tagged_split)
        elif "/" not in name:
            split = "train"
    base = _OTHER_WORDS.get(base, base)
    full = base if split is None else f"{split}/{base}"
    if given:
        full += "{" + ",".join(f"{key}={value}" for key, value in sorted(given.items())) + "}"
    return full


def _split_and_base(name: str) -> tuple[str | None, str]:
    head, slash, rest = name.partition("/")
    if slash:
        return (_SPLITS[head], rest) if head in _SPLITS and rest else (None, name)
    head, underscore, rest = name.partition("_")
    if underscore and rest and head in _SPLITS_BEFORE_UNDERSCORE:
        return _SPLITS[head], rest
    return None, name
