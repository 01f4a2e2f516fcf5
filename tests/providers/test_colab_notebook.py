"""Notebooks for Colab: they really run, with a fake for what only Colab has."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gpubloom.providers.colab.notebook import colab_notebook
from gpubloom.scripts import ScriptProblem, from_notebook
from gpubloom.scripts.templates import templates
from tests.errors import raises

# What Colab's own library does, as far as notebooks of ours ask for it.
GOOGLE_COLAB = {
    "drive.py": "import os\ndef mount(path): os.makedirs(path + '/MyDrive', exist_ok=True)\n",
    "files.py": "import os\ndef download(path): print('downloads', os.path.basename(path))\n",
    "userdata.py": "import os\ndef get(name): return os.environ['SECRET_' + name]\n",
    "__init__.py": "",
}
SCRIPT = """\
import os
import sys
from pathlib import Path

import helper_module

out_dir = "out"


def main():
    print("arguments", sys.argv[1:])
    print("learned", helper_module.answer(), Path("data/words.txt").read_text())
    Path(out_dir).mkdir(exist_ok=True)
    Path(out_dir, "weights.bin").write_bytes(b"learned")


if __name__ == "__main__":
    main()
"""
FILES: dict[str, str | bytes] = {
    "train.py": SCRIPT,
    "helper_module.py": "def answer():\n    return 42\n",
    "data/words.txt": "some words",
    "data/raw.bin": b"\x00\xff",
}


def code_of(notebook: Mapping[str, Any]) -> str:
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"])


def run(notebook: Mapping[str, Any], folder: Path, **environment: str) -> str:
    """What it prints, run in a Colab that lies in `folder`."""
    library = folder / "library" / "google" / "colab"
    library.mkdir(parents=True, exist_ok=True)
    for name, text in GOOGLE_COLAB.items():
        (library / name).write_text(text)
    text = json.dumps(notebook).replace("/content", str(folder / "content"))
    (folder / "content").mkdir(exist_ok=True)
    parsed = nbformat.reads(text, as_version=4)
    nbformat.validate(parsed)
    client = NotebookClient(parsed, timeout=120, kernel_name="python3")
    path = os.pathsep.join([str(folder / "library"), os.environ.get("PYTHONPATH", "")])
    client.execute(env={**os.environ, "PYTHONPATH": path, **environment})
    return "".join(
        output.get("text", "") for cell in parsed.cells if cell.cell_type == "code" for output in cell.outputs
    )


@pytest.mark.long
def test_a_notebook_runs_the_script_with_its_files_and_keeps_what_it_makes(tmp_path: Path) -> None:
    notebook = colab_notebook(FILES, "train.py", ["--steps=3"], ["numpy"], name="my job")
    printed = run(notebook, tmp_path)
    assert "arguments ['--steps=3']" in printed
    assert "learned 42 some words" in printed
    kept = tmp_path / "content" / "drive" / "MyDrive" / "GPU Bloom" / "my job"
    assert (kept / "out" / "weights.bin").read_bytes() == b"learned"
    assert (kept / "data" / "raw.bin").read_bytes() == b"\x00\xff"
    assert "downloads results.zip" in printed
    assert (tmp_path / "content" / "results.zip").is_file()


def test_the_script_can_be_read_in_the_notebook_and_comes_back_unchanged() -> None:
    notebook = colab_notebook(FILES)
    assert from_notebook(json.dumps(notebook)) == SCRIPT
    assert "%%writefile helper_module.py\ndef answer():" in code_of(notebook)
    assert notebook["metadata"]["accelerator"] == "GPU"
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    assert kinds[0] == "markdown"
    assert "drive.mount" in "".join(notebook["cells"][1]["source"])
    assert "nvidia-smi" in code_of(notebook)


def test_what_the_script_imports_is_installed_unless_it_is_said() -> None:
    script = {"train.py": "import torch, tiktoken, model", "model.py": "import numpy"}
    line = next(line for line in code_of(colab_notebook(script)).splitlines() if line.startswith("%pip"))
    assert set(line.split()) == {"%pip", "install", "--quiet", "torch", "tiktoken", "numpy"}
    assert '%pip install --quiet "torch>=2.9"' in code_of(colab_notebook(script, packages=["torch>=2.9"]))
    assert "%pip" not in code_of(colab_notebook(script, packages=[]))


def test_a_session_that_ended_goes_on_from_what_lies_in_drive(tmp_path: Path) -> None:
    template = next(each for each in templates() if each.name == "nanogpt-local")
    files = {file.path: file.text for file in template.files}
    notebook = colab_notebook(files, "train.py", template.arguments)
    text = code_of(notebook)
    assert "if os.path.isdir('out') and os.listdir('out'):" in text
    assert "sys.argv += ['--resume']" in text


@pytest.mark.long
def test_a_template_runs_as_a_notebook_and_goes_on_in_the_next_session(tmp_path: Path) -> None:
    template = next(each for each in templates() if each.name == "nanogpt-local")
    files = {file.path: file.text for file in template.files}

    def steps(count: int) -> str:
        few = ("--n_layer=1", "--n_embd=32", "--eval_iters=1", f"--max_iters={count}", "--log_interval=1")
        notebook = colab_notebook(files, "train.py", (*template.arguments, *few))
        return run(notebook, tmp_path, OMP_NUM_THREADS="1")

    assert "iter 3: loss" in steps(3)
    again = steps(5)
    assert "resumed at step 3" in again
    assert "iter 5: loss" in again


@pytest.mark.parametrize(
    ("files", "packages", "code"),
    [
        ({"other.py": ""}, (), "entry_not_found"),
        ({"train.py": "", "../up.py": ""}, (), "path_outside_folder"),
        ({"train.py": "", "/etc/x": ""}, (), "path_outside_folder"),
        ({"train.py": "", "a\n!rm -rf b.py": ""}, (), "path_outside_folder"),
        ({"train.py": "", "big": b"0" * (5 << 20)}, (), "files_too_large"),
        ({"train.py": "if"}, (), "not_python"),
        ({"train.py": b"\xff\xfe"}, (), "not_utf8"),
        ({"train.py": ""}, ("numpy; rm -rf /",), "invalid_package"),
        ({"train.py": ""}, ("--index-url=http://x",), "invalid_package"),
    ],
)
def test_what_no_notebook_can_be_made_of_is_said(
    files: dict[str, str | bytes], packages: Sequence[str], code: str
) -> None:
    with raises(ScriptProblem, code=code):
        colab_notebook(files, packages=packages)
