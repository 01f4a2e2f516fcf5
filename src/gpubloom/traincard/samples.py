"""Samples: what a model answers to the same prompts over the steps of its run.

A fold over events of kind `sample` in bounded memory: of many prompts the first ones are kept, of many steps
the first, the last and ever fewer in between. A step that a later attempt repeats is answered anew.
"""

import os
from collections.abc import Mapping
from typing import Any

from gpubloom.traincard.reader import Reader

KIND = "sample"
SAMPLE_PROMPT_CHARACTERS = 2_000
SAMPLE_CHARACTERS = 4_096
_PROMPTS = 16
_STEPS = 40


class Samples:
    """Answers by prompt and step."""

    def __init__(self) -> None:
        self._answers: dict[str, dict[int, str]] = {}

    def add(self, fields: Mapping[str, Any]) -> None:
        """Takes in an event; one that no Reporter writes is left out."""
        step, prompt, text = fields.get("step"), fields.get("prompt"), fields.get("text")
        if not isinstance(prompt, str) or not isinstance(text, str):
            return
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            return
        if prompt not in self._answers and len(self._answers) >= _PROMPTS:
            return
        answers = self._answers.setdefault(prompt[: SAMPLE_PROMPT_CHARACTERS + 100], {})
        answers[step] = text[: SAMPLE_CHARACTERS + 100]
        if len(answers) > _STEPS:
            _thin(answers)

    def as_list(self) -> list[dict[str, Any]]:
        """Prompts in the order in which they came, each with its answers from the first step on."""
        return [
            {
                "prompt": prompt,
                "answers": [{"step": step, "text": text} for step, text in sorted(answers.items())],
            }
            for prompt, answers in self._answers.items()
        ]


def _thin(answers: dict[int, str]) -> None:
    """Leaves out the answer whose neighbours are closest together: what is left is spread evenly."""
    steps = sorted(answers)
    gaps = [(after - before, here) for before, here, after in zip(steps, steps[1:], steps[2:], strict=False)]
    del answers[min(gaps)[1]]


def load_samples(run_dir: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The samples of a run directory, without reading its curves."""
    reader = Reader(run_dir, ranks=[0], condensed=True, kinds=[KIND])
    samples = Samples()
    while events := reader.read_new():
        for event in events:
            inner = event.fields["events"] if event.kind == "condensed" else [event.fields]
            for fields in inner:
                if fields.get("kind") == KIND:
                    samples.add(fields)
    return samples.as_list()
