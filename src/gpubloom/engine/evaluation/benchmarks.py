"""Public benchmarks through the library lm-eval, with a model that is loaded already.

Tasks are named; files with tasks of one's own lie in the folder that BLOOM_LM_EVAL_TASKS names. A path is no
name: a task file can bring code along, and whoever may evaluate a model need not be allowed to run that.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpubloom.engine.generate import TextModel
from gpubloom.engine.pretrained_text import PretrainedText, load_pretrained_text, tuned
from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.engine.transformers_loading import load_tokenizer
from gpubloom.errors import InputError

OWN_TASKS = "BLOOM_LM_EVAL_TASKS"
_NAME = re.compile(r"[\w-][\w.-]*")


def must_be_possible(tasks: Sequence[str]) -> None:
    """Says what is missing before a model is loaded."""
    for name in tasks:
        if not _NAME.fullmatch(name) or name.endswith((".yaml", ".yml")):
            raise InputError(
                "unknown_benchmark",
                f"{name!r} is not a valid lm-eval task name; to use your own task files, put them into a "
                f"folder and set {OWN_TASKS} to that folder.",
            )
    try:
        import lm_eval  # noqa: F401
    except ImportError:
        raise InputError(
            "not_installed",
            "lm-eval tasks need the library lm-eval, which is not installed. "
            "Run: pip install 'gpubloom[eval]'",
        ) from None


def benchmark(registry: ModelRegistry, model: TextModel, tasks: Sequence[str]) -> dict[str, dict[str, float]]:
    """By task: its metrics. ValueError for tasks that are not known."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    known = TaskManager(include_path=os.environ.get(OWN_TASKS) or None)
    if unknown := [name for name in tasks if name not in known.all_tasks]:
        raise InputError("unknown_benchmark", f"lm-eval has no task named {', '.join(unknown)}.")
    text = _of_transformers(registry, model)
    tokenizer = load_tokenizer(_tokenizer_folder(registry.found))
    with tuned(text.is_tuned):
        asked = HFLM(
            pretrained=text.module, tokenizer=tokenizer, batch_size=1, max_length=text.context_length
        )
        found: Any = simple_evaluate(asked, tasks=list(tasks), task_manager=known, log_samples=False)
    return {
        name: {
            metric.partition(",")[0]: float(value)
            for metric, value in results.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, results in found["results"].items()
    }


def _of_transformers(registry: ModelRegistry, model: TextModel) -> PretrainedText:
    """Our own presets are saved as a Llama that transformers reads as well."""
    if isinstance(model, PretrainedText):
        return model
    return load_pretrained_text(registry.found.folder, compute=registry.compute)


def _tokenizer_folder(found: ResolvedModel) -> Path:
    file = found.file("tokenizer.json")
    assert file is not None, "the prompt formatter would have rejected it"
    return file.parent
