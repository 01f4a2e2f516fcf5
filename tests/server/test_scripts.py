"""Requirements over the API: read in a moment, with evidence; what cannot be read is a problem document."""

import json
from pathlib import Path

import nbformat
import pytest

from tests.server.installation import Browser, Server

EXAMPLES = Path(__file__).parents[1] / "scripts" / "examples"


@pytest.fixture
def ada(sqlite_server: Server) -> Browser:
    return sqlite_server.stranger


def test_a_script_and_its_files_are_read(ada: Browser) -> None:
    folder = EXAMPLES / "nanogpt"
    config = "config/train_shakespeare_char.py"
    body = {
        "script": (folder / "train.py").read_text(),
        "files": {name: (folder / name).read_text() for name in ("model.py", config)},
        "arguments": ["--max_iters=100"],
    }
    answer = ada.post("/api/requirements", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["parameters"]["value"] == 10_770_816
    assert found["iterations"]["evidence"][0] == {
        "line": 0,
        "text": "--max_iters=100",
        "file": "command line",
    }
    assert found["batch"] == {
        "value": 64, "confidence": "stated", "reason": None,
        "evidence": [{"line": 7, "text": "batch_size = 64", "file": config}],
    }  # fmt: skip
    assert found["gpu_memory_gb"]["confidence"] == "derived"
    assert found["checkpoints"]["value"]["resume_arguments"] == ["--init_from=resume"]
    assert found["multi_node"]["value"] is False


def test_a_notebook_is_read_like_its_script(ada: Browser) -> None:
    text = (EXAMPLES / "colab_finetune.ipynb").read_text()
    found = ada.post("/api/requirements", json={"script": text}).json()
    assert found["interactive"]["value"] is True
    assert found["models"][0]["value"] == "distilgpt2"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"script": "import torch\nx = (1,\n"}, 422, "line 2"),
        ({"script": "#" * 200_000}, 422, "200,000 characters"),
        ({"script": "x = 1", "arguments": ["a"] * 101}, 422, "arguments"),
        ({"script": "x = 1", "files": {f"{n}.py": "" for n in range(51)}}, 422, "files"),
        ({"script": "x = '\ud800'"}, 422, "unicode"),
        ({"script": "#" * 1_100_000}, 413, "1024 KiB"),
        ({}, 422, "required"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_a_sentence(
    ada: Browser, body: dict[str, object], status: int, words: str
) -> None:
    answer = ada.post(
        "/api/requirements", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


def test_a_script_becomes_a_notebook_and_comes_back(ada: Browser) -> None:
    script = (EXAMPLES / "char_gpt_constants.py").read_text()
    notebook = ada.post("/api/scripts/to-notebook", json={"script": script}).json()["notebook"]
    nbformat.validate(json.loads(notebook))
    again = ada.post("/api/scripts/from-notebook", json={"notebook": notebook})
    assert again.json() == {"script": script}
    refused = ada.post("/api/scripts/from-notebook", json={"notebook": "{}"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "notebook"


def test_a_script_becomes_a_notebook_for_colab(ada: Browser) -> None:
    body = {
        "script": "import torch\nprint('trained')\n",
        "files": {"model.py": "width = 3\n"},
        "arguments": ["--steps=3"],
        "name": "a job",
    }
    answer = ada.post("/api/scripts/colab-notebook", json=body)
    assert answer.status_code == 200, answer.text
    text = answer.json()["notebook"]
    nbformat.validate(nbformat.reads(text, as_version=4))
    for part in (
        "drive.mount",
        "%pip install --quiet torch",
        "%%writefile model.py",
        "['train.py', '--steps=3']",
    ):
        assert part in text.replace('\\"', '"'), part
    refused = ada.post("/api/scripts/colab-notebook", json={**body, "packages": ["a; rm -rf /"]})
    assert refused.status_code == 422
    assert "not a valid package name" in refused.text
