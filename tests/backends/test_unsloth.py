"""What Unsloth is asked for. It needs a GPU to be imported at all, so a fake takes the calls here."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# In a process of its own, as in life: whoever has imported transformers before has lost.
_PROLOGUE = """
import pathlib, sys, types
import torch
torch.cuda.is_available = lambda: True
from gpubloom.backends import open_trainer
from gpubloom.engine.hardware import Compute
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter

FOLDER = pathlib.Path(__file__).parent / "model"
FOLDER.mkdir()
(FOLDER / "config.json").write_text("{}")

def config(method, **more):
    model = {"path": str(FOLDER), "context_length": 64}
    return TrainConfig.model_validate(
        {"backend": "unsloth", "method": method, "seed": 7, "model": model, **more}
    )

class Rows:
    is_packed = False

class Data:
    train = Rows()
    def report(self, reporter):
        pass
"""

_FAKE_UNSLOTH = """
import sys, torch
# It must have been imported before the libraries that it changes.
assert not {"transformers", "trl", "peft"} & set(sys.modules), "Unsloth came too late"
# Seen by now; what is imported next would look for the GPU itself.
torch.cuda.is_available = lambda: False
calls = []
class FastLanguageModel:
    @staticmethod
    def from_pretrained(**named):
        calls.append(("from_pretrained", named))
        return "model", "tokenizer"
    @staticmethod
    def get_peft_model(model, **named):
        assert model == "model"
        calls.append(("get_peft_model", named))
        return "adapted"
"""


def run(folder: Path, code: str, *, fake: bool = True) -> str:
    """What the code prints, or the last line of its error."""
    if fake:
        (folder / "unsloth.py").write_text(_FAKE_UNSLOTH, encoding="utf-8")
    script = folder / "script.py"
    script.write_text(f"{_PROLOGUE}\n{textwrap.dedent(code)}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=150, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@pytest.mark.long
def test_models_are_loaded_and_adapted_as_the_config_says(tmp_path: Path) -> None:
    code = """
    assert "transformers" not in sys.modules
    from gpubloom.backends.unsloth import load_with_unsloth
    import unsloth
    compute = Compute(torch.device("cuda:0"), "bf16", "")
    loaded = load_with_unsloth(config("qlora", lora={"rank": 8, "alpha": 16, "dropout": 0.1}), compute)
    assert (loaded.model, loaded.adapters) == ("adapted", None)
    (first, named), (second, adapters) = unsloth.calls
    assert (first, second) == ("from_pretrained", "get_peft_model")
    assert named == {
        "model_name": str(FOLDER), "max_seq_length": 64, "dtype": torch.bfloat16, "load_in_4bit": True,
        "full_finetuning": False, "local_files_only": True, "trust_remote_code": False,
    }, named
    assert adapters["target_modules"] == [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
    ]
    assert (adapters["r"], adapters["lora_alpha"], adapters["lora_dropout"]) == (8, 16.0, 0.1)
    assert (adapters["use_gradient_checkpointing"], adapters["random_state"]) == ("unsloth", 7)
    unsloth.calls.clear()
    loaded = load_with_unsloth(config("full"), compute)
    assert loaded.model == "model"
    [(_, named)] = unsloth.calls
    assert (named["full_finetuning"], named["load_in_4bit"], named["dtype"]) == (True, False, torch.float32)
    loaded = load_with_unsloth(config("lora", lora={"targets": ["q_proj"]}), compute)
    assert unsloth.calls[-1][1]["target_modules"] == ["q_proj"]
    print("good")
    """
    assert run(tmp_path, code) == "good"


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a process says that cannot train with Unsloth, for one reason after the other."""
    code = """
    def ask():
        try:
            open_trainer(config("lora"), Data(), None)
        except ValueError as problem:
            print(problem)

    Rows.is_packed = True
    ask()
    Rows.is_packed = False
    torch.cuda.is_available = lambda: False
    ask()
    torch.cuda.is_available = lambda: True
    ask()
    sys.modules["transformers"] = types.ModuleType("transformers")
    ask()
    """
    return run(tmp_path_factory.mktemp("refusals"), code, fake=False).splitlines()


@pytest.mark.long
def test_packed_rows_are_refused(refusals: list[str]) -> None:
    assert refusals[0] == "Backend unsloth does not support packing: set data.packing to false."


def test_without_a_gpu_it_is_refused_before_anything_is_loaded(refusals: list[str]) -> None:
    assert (
        refusals[1]
        == "Unsloth needs a CUDA GPU, but torch finds none on this machine: use backend engine or trl."
    )


def test_in_an_environment_without_it_the_right_one_is_asked_for(refusals: list[str]) -> None:
    assert refusals[2].startswith("Unsloth cannot be imported: No module named 'unsloth'.")
    assert "BLOOM_UNSLOTH_PYTHON" in refusals[2]


def test_a_process_that_has_imported_transformers_is_too_late(refusals: list[str]) -> None:
    assert refusals[3] == "Unsloth must be imported before transformers: start train.py in a new process."
