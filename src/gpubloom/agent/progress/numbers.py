"""Numbers with names in a line of output, and the names by which TrainCard knows them."""

import math
import re

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d{1,3})?|\.\d+|nan|inf)"
_MOST_PAIRS = 40
_PAIR = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z][\w/@-]{0,40})['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?P<value>"
    + NUMBER
    + r")(?![\w:/]|\.\d)",
    re.IGNORECASE,
)
# "train loss 3.91", "loss 0.5", "val_loss is 0.3": only of what is known to be a measurement.
_WORDS = re.compile(
    r"\b(?P<name>(?:(?:train|training|val|valid|validation|eval|test|avg|average|mean|total)[ _/-]?)?"
    r"(?:loss|acc|accuracy|perplexity|ppl))\s{0,3}(?:is|of|[:=(])?\s{0,3}(?P<value>"
    + NUMBER
    + r")(?![\w:/]|\.\d)",
    re.IGNORECASE,
)
_SPLITS = {
    "train": "train", "training": "train", "val": "eval", "valid": "eval", "validation": "eval",
    "eval": "eval", "test": "test",
}  # fmt: skip
_NAMES = {
    "acc": "accuracy", "lr": "learning_rate", "ppl": "perplexity", "gnorm": "grad_norm",
    "learning rate": "learning_rate", "nll_loss": "loss", "tps": "tokens_per_second",
    "wps": "tokens_per_second", "tokens_per_second_per_gpu": "tokens_per_second",
}  # fmt: skip
# Counts, clocks and labels: they say where a run is, or nothing about how it goes.
_NOT_METRICS = frozenset({
    "step", "steps", "iter", "iters", "iteration", "epoch", "epochs", "global_step", "total", "batch", "eta",
    "time", "elapsed", "v_num", "version", "rank", "pid", "num_updates", "num_update", "it", "port", "seed",
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "eval_runtime", "total_flos",
    "eval_samples_per_second", "eval_steps_per_second", "train_wall", "wall", "level", "line", "ub", "bsz",
    "max_steps", "total_steps", "max_iters",
})  # fmt: skip


def number(text: str) -> float | None:
    """A number as people print it: 1,024 and 3e-4 and nan."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def pairs(line: str) -> dict[str, float]:
    """name: value, name=value, 'name': 'value' of a line."""
    found: dict[str, float] = {}
    for count, match in enumerate(_PAIR.finditer(line)):
        if count >= _MOST_PAIRS:
            break
        value = number(match["value"])
        if value is not None:
            found.setdefault(match["name"], value)
    return found


def worded(line: str) -> dict[str, float]:
    """Measurements with blanks in their names, or none before their values."""
    found: dict[str, float] = {}
    for match in _WORDS.finditer(line):
        value = number(match["value"])
        if value is not None:
            found.setdefault(match["name"], value)
    return found


def metrics(given: dict[str, float]) -> dict[str, float]:
    """Those of these values that are worth a curve, by TrainCard's names."""
    found: dict[str, float] = {}
    for name, value in given.items():
        if name.casefold() in _NOT_METRICS:
            continue
        known = metric_name(name)
        if known == "train/mfu" and value < 0:
            # nanoGPT's word for "not measured yet".
            continue
        if math.isfinite(value) or known.endswith("loss"):
            found.setdefault(known, value)
    return found


def metric_name(name: str) -> str:
    """`val loss` is eval/loss, `Loss/train` train/loss, `lr` train/learning_rate."""
    words = [word for word in re.split(r"[\s_/-]+", name.casefold().strip()) if word]
    words = [word for word in words if word not in {"avg", "average", "mean", "epoch"}] or words
    split = "train"
    for index in (0, -1):
        if len(words) > 1 and words[index] in _SPLITS:
            split = _SPLITS[words.pop(index)]
            break
    base = "_".join(words)
    return f"{split}/{_NAMES.get(base, base)}"
