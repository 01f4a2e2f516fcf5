"""Parse one line of output: one function for each format in which training scripts print their progress.

A line in none of these formats says nothing, which is the usual case and has to be cheap. Metrics get the
names by which TrainCard knows them.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

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


_COUNT = r"\d[\d,]{0,15}"


@dataclass(frozen=True)
class ParsedLine:
    """What a line says. `bar`: step counts within this bar, which may be one of many of its `label`."""

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    bar: bool = False
    label: str = ""
    facts: dict[str, float] = field(default_factory=dict)
    # Epochs are counted from 0.
    from_zero: bool = False


_BAR = re.compile(
    r"^(?P<label>.{0,160}?)(?P<percent>\d{1,3})%\|[^|]{0,300}\|\s{0,8}"
    rf"(?P<step>{_COUNT})/(?P<total>{_COUNT})\s{{0,4}}\[(?P<clock>[^\]]{{0,600}})"
)
# A bar of no step yet has "?" for its rate.
_RATE = re.compile(rf"(?P<value>{NUMBER}|\?)(?P<unit>it/s|s/it|batch/s|s/batch|step/s|s/step|ms/step)")
_LABEL_EPOCH = re.compile(
    rf"\bepoch\b\W{{0,3}}(?P<epoch>{_COUNT})(?:\s{{0,2}}(?:/|of)\s{{0,2}}(?P<epochs>{_COUNT}))?",
    re.IGNORECASE,
)
_OTHER_BARS = re.compile(
    r"valid|eval|test|download|load|map|tokeniz|filter|fetch|generat|resolv|prepar|process|sanity|predict|"
    r"upload|saving|shards|packing|truncat|sampling|encod|extract|adding|convert",
    re.IGNORECASE,
)
_TORCHTUNE_LABEL = re.compile(r"(?P<epoch>\d{1,6})\|(?P<step>\d{1,12})\|Loss: (?P<loss>" + NUMBER + ")")


def bar(line: str) -> ParsedLine | None:
    """tqdm, and with it accelerate, Lightning, torchtune and Hugging Face's Trainer."""
    if "%|" not in line:
        return None
    match = _BAR.match(line)
    if match is None:
        return None
    label, clock = match["label"].strip().rstrip(":").strip(), match["clock"]
    rate = _RATE.search(clock)
    if _OTHER_BARS.search(label) or (rate is None and re.search(r"[A-Za-z]/s", clock)):
        return None
    values = metrics(pairs(clock.partition(",")[2]))
    tune = _TORCHTUNE_LABEL.search(label)
    if tune is not None and (loss := number(tune["loss"])) is not None:
        values["train/loss"], label = loss, "torchtune"
    if rate is not None and (seconds := _seconds(rate)) is not None:
        values["train/step_seconds"] = seconds
    epoch = _LABEL_EPOCH.search(label)
    return ParsedLine(
        step=_whole(match["step"]),
        total=_whole(match["total"]),
        epoch=_number(epoch, "epoch"),
        epochs=_number(epoch, "epochs"),
        values=values,
        bar=True,
        label=_LABEL_EPOCH.sub("epoch", label),
        from_zero=epoch is not None and epoch["epochs"] is None,
    )


def _seconds(rate: re.Match[str]) -> float | None:
    value = number(rate["value"])
    if value is None or not 0 < value < 1e9:
        return None
    if rate["unit"].startswith("ms/"):
        return value / 1000
    return value if rate["unit"].startswith("s/") else 1 / value


_RICH = re.compile(
    rf"^Epoch (?P<epoch>{_COUNT})/(?P<epochs>{_COUNT})\s.{{0,200}}?(?P<step>{_COUNT})/(?P<total>{_COUNT}) "
    r"\d{1,3}:\d\d:\d\d • (?P<rest>.*)$"
)


def rich_bar(line: str) -> ParsedLine | None:
    """Lightning's other bar."""
    match = _RICH.match(line) if " • " in line else None
    if match is None:
        return None
    return ParsedLine(
        step=_whole(match["step"]),
        total=_whole(match["total"]),
        epoch=_number(match, "epoch"),
        # It counts from 0 and shows the last one.
        epochs=(_number(match, "epochs") or 0.0) + 1,
        values=metrics(pairs(match["rest"])),
        bar=True,
        label="epoch",
        from_zero=True,
    )


_KERAS = re.compile(
    rf"^(?P<step>{_COUNT})/(?P<total>{_COUNT}) (?:[━─╸╺ ]{{3,}}|\[[=>.]{{3,}}\])(?P<rest>.*)$"
)


def keras(line: str) -> ParsedLine | None:
    """`10/100 ━━━━ 3s 30ms/step - accuracy: 0.91 - loss: 0.21`"""
    match = _KERAS.match(line)
    if match is None:
        return None
    rest = match["rest"]
    values = metrics(pairs(rest.partition(" - ")[2]))
    rate = _RATE.search(rest)
    if rate is not None and (seconds := _seconds(rate)) is not None:
        values["train/step_seconds"] = seconds
    return ParsedLine(
        step=_whole(match["step"]), total=_whole(match["total"]), values=values, bar=True, label="keras"
    )


_EPOCH_LINE = re.compile(rf"^Epoch (?P<epoch>{_COUNT})/(?P<epochs>{_COUNT})$")


def epoch_line(line: str) -> ParsedLine | None:
    """Keras' heading of an epoch."""
    match = _EPOCH_LINE.match(line)
    return (
        None if match is None else ParsedLine(epoch=_number(match, "epoch"), epochs=_number(match, "epochs"))
    )


def dictionary(line: str) -> ParsedLine | None:
    """Hugging Face's `{'loss': '2.3', 'epoch': '0.1'}`, and logs that are JSON."""
    if not line.startswith("{") or not line.endswith("}"):
        return None
    found = pairs(line)
    values = metrics(found)
    if "train_runtime" in found and "loss" not in found:
        # The totals at the end: a mean over the run is no point of its curve. A step's log has "loss", and
        # with include_num_input_tokens_seen it has the runtime too.
        values.pop("train/loss", None)
    if not any(name.endswith(("loss", "accuracy", "reward")) for name in values):
        return None
    step = next((found[name] for name in ("step", "global_step", "iter", "iteration") if name in found), None)
    total = next((found[name] for name in ("total_steps", "max_steps") if name in found), None)
    return ParsedLine(
        step=None if step is None else int(step),
        total=None if total is None else int(total),
        epoch=found.get("epoch"),
        values=values,
        label="dictionary",
    )


_NANOGPT = re.compile(
    rf"^iter (?P<step>{_COUNT}): loss (?P<loss>{NUMBER}), time (?P<time>{NUMBER})ms"
    rf"(?:, mfu (?P<mfu>{NUMBER})%)?"
)
_NANOGPT_EVAL = re.compile(
    rf"^step (?P<step>{_COUNT}): train loss (?P<train>{NUMBER}), val loss (?P<val>{NUMBER})"
)
_TOTAL = re.compile(
    r"^(?:Overriding: )?(?:max_iters|max_steps|total_steps|num_steps|Total optimization steps)"
    rf"\s{{0,2}}[=:]\s{{0,2}}(?P<total>{_COUNT})$"
)
_FACT = re.compile(
    rf"^(?P<name>tokens per iteration will be|number of parameters): (?P<value>{NUMBER})(?P<unit>[MB]?)$"
)


def nano_gpt(line: str) -> ParsedLine | None:
    if match := _NANOGPT.match(line):
        given = {"loss": number(match["loss"]), "mfu": number(match["mfu"] or "-1")}
        values = metrics({name: value for name, value in given.items() if value is not None})
        if (milliseconds := number(match["time"])) is not None:
            values["train/step_seconds"] = milliseconds / 1000
        return ParsedLine(step=_whole(match["step"]), values=values, label="nanogpt")
    if match := _NANOGPT_EVAL.match(line):
        # The training loss here is over many batches, and the curve of the single ones is the other line's.
        value = number(match["val"])
        return ParsedLine(
            step=_whole(match["step"]), values={} if value is None else {"eval/loss": value}, label="nanogpt"
        )
    if match := _TOTAL.match(line):
        return ParsedLine(total=_whole(match["total"]))
    if (match := _FACT.match(line)) and (value := number(match["value"])) is not None:
        name = "tokens_per_step" if match["name"].startswith("tokens") else "parameters"
        return ParsedLine(facts={name: value * {"": 1, "M": 1e6, "B": 1e9}[match["unit"]]})
    return None


_FAIRSEQ = re.compile(
    rf"\bepoch (?P<epoch>\d{{1,6}}):?\s{{1,6}}(?P<step>{_COUNT}) / (?P<total>{_COUNT}) (?P<rest>.*loss=.*)$"
)


def fairseq(line: str) -> ParsedLine | None:
    match = _FAIRSEQ.search(line) if " / " in line and "loss=" in line else None
    if match is None:
        return None
    return ParsedLine(
        step=_whole(match["step"]), total=_whole(match["total"]), epoch=_number(match, "epoch"),
        values=metrics(pairs(match["rest"])), bar=True, label="fairseq",
    )  # fmt: skip


_EPOCH = re.compile(
    rf"\bepochs?\b\W{{0,4}}(?P<epoch>{_COUNT})\]?(?:\s{{0,2}}(?:/|of)\s{{0,2}}(?P<epochs>{_COUNT}))?",
    re.IGNORECASE,
)
_STEP = re.compile(
    rf"\b(?:global[ _]step|steps?|iter(?:ation)?s?|batch|it|update)\b\W{{0,4}}(?P<step>{_COUNT})"
    rf"(?:\s{{0,2}}(?:/|of)\s{{0,2}}(?P<total>{_COUNT}))?",
    re.IGNORECASE,
)
_OF_EXAMPLES = re.compile(rf"\[(?P<step>{_COUNT})/(?P<total>{_COUNT}) \(\d{{1,3}}%\)\]")
_BRACKET = re.compile(rf"^\[?(?P<step>{_COUNT})/(?P<total>{_COUNT})\]?[\s:,|-]")


def plain(line: str) -> ParsedLine | None:
    """`Epoch 3/10 … loss: 0.5`, `Step 1 | loss:2.08 lr:2e-05` and what people write like them."""
    folded = line.casefold()
    if line.startswith("{"):
        return None
    if "loss" not in folded and "acc" not in folded:
        return None
    values = metrics({**worded(line), **pairs(line)})
    if not any(name.endswith(("loss", "accuracy")) for name in values):
        return None
    epoch, step = _EPOCH.search(line), _STEP.search(line)
    examples = _OF_EXAMPLES.search(line)
    if step is None and epoch is None:
        step = _BRACKET.match(line)
    if step is None and epoch is None and examples is None:
        return None
    where = step or examples
    in_epoch = epoch is not None and where is not None and where["total"] is not None
    return ParsedLine(
        step=None if where is None else _whole(where["step"]),
        total=None if where is None else _whole(where["total"]),
        epoch=_number(epoch, "epoch"),
        epochs=_number(epoch, "epochs"),
        values=values,
        bar=in_epoch,
        label="plain",
    )


FORMATS: tuple[Callable[[str], ParsedLine | None], ...] = (
    bar, rich_bar, keras, epoch_line, dictionary, nano_gpt, fairseq, plain,
)  # fmt: skip
_DIGIT = re.compile(r"\d")


def read_line(line: str) -> ParsedLine | None:
    """The parsed line; None if it says nothing about a training."""
    if _DIGIT.search(line) is None:
        return None
    for read in FORMATS:
        if (said := read(line)) is not None:
            return said
    return None


def _whole(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) < 16 else None


def _number(match: re.Match[str] | None, name: str) -> float | None:
    return None if match is None or match[name] is None else number(match[name])
