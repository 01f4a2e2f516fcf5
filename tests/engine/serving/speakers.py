"""Models for serving tests: adapters made by hand, and a model that says what a test wants it to say."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import safetensors.torch
import torch
from torch import Tensor, nn

from gpubloom.engine.serving.http_server import serving
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.service import Service

TOKEN = "the-token"


def make_adapter(folder: Path, base: Path, seed: int = 7, rank: int = 4) -> Path:
    """An adapter with large random matrices: what it changes cannot be overlooked."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(base)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for path, module in model.named_modules():
        if path.endswith(("q_proj", "v_proj", "down_proj")):
            outputs, inputs = module.weight.shape
            name = f"base_model.model.{path}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) * 0.2
            tensors[f"{name}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator) * 0.2
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


class _Slot:
    length = 0


class Scripted:
    """Says the tokens of a script, one per call, then ends. Counts its calls.

    `before` is called before each token with the number of calls so far; it may wait.
    """

    context_length = 512
    reads_in_pieces = False

    def __init__(self, script: list[int], vocab_size: int, end: int) -> None:
        self._script = script
        self._vocab_size = vocab_size
        self._end = end
        self.before: Callable[[int], None] = lambda calls: None
        self.calls = 0
        # Which answer each call was for.
        self.answers: list[int] = []
        self._weight = nn.Parameter(torch.zeros(1))

    def parameters(self) -> Iterator[nn.Parameter]:
        return iter([self._weight])

    def new_cache(self) -> list[_Slot]:
        return [_Slot()]

    def __call__(self, tokens_BT: Tensor, cache: list[_Slot], *, last_only: bool = False) -> Tensor:
        self.before(self.calls)
        self.answers.append(id(cache[0]))
        said = cache[0].length
        cache[0].length += 1
        self.calls += 1
        logits = torch.zeros(1, 1, self._vocab_size)
        logits[0, 0, self._script[said] if said < len(self._script) else self._end] = 9.0
        return logits


class SingleModel:
    """A ModelRegistry with one given model."""

    names = ("model",)
    default = "model"
    context_length = 512

    def __init__(self, model: Any) -> None:
        self._model = model

    def get(self, name: str) -> Any:
        if name != "model":
            raise KeyError(name)
        return self._model

    def facts(self) -> dict[str, object]:
        return {}


@contextmanager
def listening(registry: Any, formatter: PromptFormatter) -> Iterator[tuple[Service, httpx.Client]]:
    """A service that listens within this process, and a client that knows its token."""
    service = Service(registry, formatter)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        serving(service, TOKEN) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client,
    ):
        yield service, client


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON of a stream's events; the end of the stream must be announced."""
    for line in lines:
        if line == "data: [DONE]":
            return
        if line:
            yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without [DONE]")
