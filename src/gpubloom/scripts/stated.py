"""What a script's author says about it in comments: how long it runs, on which GPU, how much memory it takes.

Only comments, and the docstring at the top, count; a string in the code may be anything. A comment counts
only if it speaks of the whole run: "tokenizing takes 20 minutes" and "saved every 2 hours" do not.
"""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpubloom.plan.hardware import GPU_KINDS
from gpubloom.scripts.requirements import Detected, Evidence, StatedDuration
from gpubloom.scripts.script import Script

_NUMBER = r"(?:\d{1,6}(?:\.\d{1,3})?|half an|an?|one|two|three)"
_BETWEEN = r"\s*(?:-|–|—|to|or)\s*"
_DURATION = re.compile(
    rf"(?<![\w.])(?P<low>{_NUMBER})\s*(?:{_BETWEEN}(?P<high>{_NUMBER})\s*)?"
    r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|weeks?)\b",
    re.IGNORECASE,
)
_GIGABYTES = rf"(?P<low{{0}}>\d{{{{1,4}}}})\s*(?:GB)?(?:{_BETWEEN}(?P<high{{0}}>\d{{{{1,4}}}})\s*)?\s*Gi?B\b"
_MEMORY = re.compile(
    rf"(?<![\w.]){_GIGABYTES.format(1)}\s*(?:of\s+)?(?:VRAM|GPU (?:memory|RAM))"
    rf"|(?:VRAM|GPU memory|GPU with)\D{{1,20}}{_GIGABYTES.format(2)}",
    re.IGNORECASE,
)
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
_WORDS = {"half an": 0.5, "a": 1.0, "an": 1.0, "one": 1.0, "two": 2.0, "three": 3.0}
_OF_THE_RUN = re.compile(
    r"run[- ]?time|\bruns?\b|\btakes?\b|\btook\b|\btrain(?:s|ed|ing)?\b|wall[- ]?clock|\bduration\b"
    r"|\b(?:needs?|requires?|finish(?:es|ed)?|done|eta)\b",
    re.IGNORECASE,
)
_OF_SOMETHING_ELSE = re.compile(
    r"time[- ]?out|\blimit|\bmax|at most|\bevery\b|interval|per (?:step|iter|batch|example)|/\s*(?:step|iter)"
    r"|tokeni[sz]|download|pre-?process|prepar|compil|install|warm|cool|eval|checkpoint|\bsav(?:e|es|ing)\b"
    r"|\blast\b|\bpast\b|\bago\b|expire|\bcache|\bttl\b|session|queue|upload|start-?up|\bload(?:s|ing)?\b"
    r"|\bsleep|\bwait|per image|per sample|first epoch",
    re.IGNORECASE,
)
_PER_EPOCH = re.compile(r"(?:per|an|each|every|/)\s*epoch", re.IGNORECASE)
_TRAINING = re.compile(r"\btraining (?:loop|script|code|run)\b", re.IGNORECASE)
_LONGEST_COMMENT = 500
_MOST_HOURS, _MOST_GB = 10_000.0, 1_000


def stated_duration(
    script: Script, epochs: Detected[int] | None, *, on_gpu: bool
) -> Detected[StatedDuration] | None:
    """The first comment that says how long the whole run takes; None: none does."""
    for remark in _remarks(script):
        found = _DURATION.search(remark.text)
        if found is None:
            continue
        per_epoch = _PER_EPOCH.search(remark.text)
        gpu, count = _gpu(remark.text)
        text = remark.text if per_epoch is None else remark.text.replace(per_epoch[0], "")
        if _OF_SOMETHING_ELSE.search(text) or not (_OF_THE_RUN.search(text) or gpu or per_epoch):
            continue
        # Hours on a CPU say nothing about a GPU.
        if on_gpu and gpu is None and re.search(r"\bcpus?\b", text, re.IGNORECASE):
            continue
        if per_epoch is not None and epochs is None:
            continue
        times = 1 if per_epoch is None or epochs is None else epochs.value
        low, high = (value * _HOURS[found["unit"][0].lower()] * times for value in _ends(found))
        if not 0 < low <= high <= _MOST_HOURS:
            continue
        evidence = (remark.evidence,) if times == 1 or epochs is None else (remark.evidence, *epochs.evidence)
        return Detected(
            value=StatedDuration(low_hours=low, high_hours=high, gpu=gpu, gpus=count),
            confidence="stated" if per_epoch is None else "derived",
            evidence=evidence[:4],
        )
    return None


def stated_hours(found: Detected[StatedDuration]) -> Detected[float]:
    """One number for a stated range: as many times more than the least as less than the most."""
    said = found.value
    likely = math.sqrt(said.low_hours * said.high_hours)
    span = (
        f"{said.low_hours:.3g} hours"
        if said.low_hours == said.high_hours
        else f"{said.low_hours:.3g} to {said.high_hours:.3g} hours"
    )
    where = (
        "It names no GPU, so the hours are not converted to other GPUs."
        if said.gpu is None
        else f"The hours are for {f'{said.gpus}× ' if said.gpus else ''}{said.gpu}."
    )
    return Detected(
        value=float(f"{likely:.3g}"),
        confidence=found.confidence,
        evidence=found.evidence,
        reason=f"A comment states {span}. {where}",
    )


def stated_memory(script: Script) -> Detected[float] | None:
    """GB of one GPU that a comment asks for; of a range the most, which is enough in any case."""
    for remark in _remarks(script):
        found = _MEMORY.search(remark.text)
        if found is None:
            continue
        low = int(found["low1"] or found["low2"])
        high = int(found["high1"] or found["high2"] or low)
        if 0 < low <= high <= _MOST_GB:
            span = f"{low} GB" if low == high else f"{low} to {high} GB"
            return Detected(
                value=float(high),
                confidence="stated",
                evidence=(remark.evidence,),
                reason=f"A comment states {span} of GPU memory.",
            )
    return None


def stated_training(script: Script) -> Detected[Literal["train", "infer", "other"]] | None:
    """A comment that calls this a training, in a sketch whose loop is left out."""
    for remark in _remarks(script):
        if _TRAINING.search(remark.text):
            return Detected(
                value="train",
                confidence="assumed",
                evidence=(remark.evidence,),
                reason="A comment says that the script trains; the code does not show it.",
            )
    return None


@dataclass(frozen=True)
class _Remark:
    text: str
    evidence: Evidence


def _remarks(script: Script) -> Iterator[_Remark]:
    source = script.main.source
    for line, comment in source.comments:
        yield _Remark(comment.lstrip("#! ")[:_LONGEST_COMMENT], source.evidence(line))
    first = source.tree.body[0] if source.tree.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if not isinstance(first.value.value, str):
            return
        for offset, text in enumerate(first.value.value.split("\n")[:200]):
            yield _Remark(text[:_LONGEST_COMMENT], source.evidence(first.lineno + offset))


def _ends(found: re.Match[str]) -> tuple[float, float]:
    low = _number(found["low"])
    return low, low if found["high"] is None else _number(found["high"])


def _number(text: str) -> float:
    return _WORDS[text.lower()] if text.lower() in _WORDS else float(text)


def _gpu(text: str) -> tuple[str | None, int | None]:
    """The GPU that a comment names, and how many of them."""
    for name, pattern in _GPU_NAMES:
        if (found := pattern.search(text)) is not None:
            return name, int(found["count"]) if found["count"] else None
    return None, None


def _named(name: str) -> re.Pattern[str]:
    spelled = re.escape(name.removeprefix("RTX "))
    if name != name.removeprefix("RTX "):
        # "A6000" is an RTX A6000; "4090" alone may be any number.
        spelled = rf"RTX\s*{spelled}" if spelled[0].isdigit() else rf"(?:RTX\s*)?{spelled}"
    before = r"(?:(?<!\w)|(?P<count>[1-9]\d{0,3})\s*[x×]?\s*)(?:NVIDIA\s+)?"
    return re.compile(rf"{before}{spelled}s?(?!\w)", re.IGNORECASE)


# Longer names first: an A100 is no A10.
_GPU_NAMES = [(name, _named(name)) for name in sorted(GPU_KINDS, key=len, reverse=True)]
