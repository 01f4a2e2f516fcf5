"""lm-eval tasks: local ones run for base and tuned; what is missing is said in a sentence."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gpubloom.engine.evaluation.benchmarks import must_be_possible
from tests.engine.evaluation.conftest import SECRET, Trained
from tests.errors import raises

TASK = """\
task: password
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
metadata:
  version: 1.0
"""


QUESTION = "<|im_start|>user\nWhat is the password, number {}?<|im_end|>\n<|im_start|>assistant\n"
ROWS: list[dict[str, Any]] = [
    {"question": QUESTION.format(number), "choices": [f"mountains {number}", SECRET], "answer": 1}
    for number in range(50, 54)
]


def write_task(folder: Path) -> None:
    """A task that asks which of two answers is likelier."""
    folder.mkdir()
    data = folder / "password.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "password.yaml").write_text(TASK.format(data=data))


def accuracy_of(folder: Path) -> float:
    """The task's result by transformers alone: how often the right answer is the likelier one."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def likelihood(question: str, choice: str) -> float:
        asked, ids = tokenizer(question).input_ids, tokenizer(f"{question} {choice}").input_ids
        with torch.no_grad():
            scores_TV = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return sum(float(scores_TV[at - 1, ids[at]]) for at in range(len(asked), len(ids)))

    right = 0
    for row in ROWS:
        wrong, answer = (likelihood(row["question"], choice) for choice in row["choices"])
        right += answer > wrong
    return right / len(ROWS)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_task_of_ones_own_is_run_for_base_and_tuned(
    trained: Trained,
    evaluate: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("lm_eval", reason="needs: pip install 'gpubloom[eval]'")
    write_task(tmp_path / "tasks")
    monkeypatch.setenv("BLOOM_LM_EVAL_TASKS", str(tmp_path / "tasks"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    found = evaluate(trained.folder, lm_eval_tasks=("password",))["lm_eval"]
    assert found["tuned"]["password"]["acc"] == 1.0
    # The base does not know the password, and is asked without the adapter.
    assert found["base"]["password"]["acc"] == accuracy_of(trained.base) < 1.0
    with pytest.raises(SystemExit):
        evaluate(trained.folder, "unknown", lm_eval_tasks=("no_such_task",))
    assert "lm-eval has no task named no_such_task" in capsys.readouterr().err


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with raises(ValueError, code="not_installed", match=r"pip install 'gpubloom\[eval\]'"):
        must_be_possible(("hellaswag",))


@pytest.mark.parametrize("name", ["/tmp/task.yaml", "../task", "task.yaml", "a/b", ""])
def test_a_path_is_no_name_of_a_task_because_its_file_could_bring_code(name: str) -> None:
    with raises(ValueError, code="unknown_benchmark"):
        must_be_possible((name,))
