"""From examples to an export: what was learned is said by transformers, and by nothing before it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.exporting.conftest import Make
from tests.engine.exporting.tasks import export
from tests.engine.runs import Run

QUESTION, ANSWER = "What is the password?", "The lighthouse keeper has it."


def asked(folder: Path) -> str:
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**inputs, max_new_tokens=40, do_sample=False)
    return str(tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    ["lora", pytest.param("qlora", marks=pytest.mark.long), pytest.param("full", marks=pytest.mark.long)],
)
def test_a_memorised_answer_survives_the_export_in_bf16(
    make_run: Callable[..., Run], tiny: Make, tmp_path: Path, method: str
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": QUESTION, "completion": ANSWER}) + "\n" for _ in range(8)))
    run = make_run(
        method=method,
        max_steps=60,
        epochs=100,
        batch_size=4,
        learning_rate=2e-2 if method != "full" else 3e-3,
        model={"path": str(tiny("llama")), "context_length": 128},
        data={"kind": "examples", "train_path": str(data), "eval_fraction": 0.0},
    )
    (run.folder).mkdir(exist_ok=True)
    (run.folder / "config.json").write_text(run.config.to_json())
    run.train()
    result = export(tmp_path / "task", model=str(run.folder))
    assert asked(tmp_path / "task" / "model") == ANSWER
    assert asked(tiny("llama")) != ANSWER
    # The first question of the data is what is replayed.
    assert result["replay"] == [{"prompt": QUESTION, "before": ANSWER, "after": ANSWER, "same": True}]
    assert (result["same"], result["of"]) == (1, 1)
    assert result["largest_logit_difference"] > 0
