"""Notebooks become scripts and scripts notebooks; both come back as they were."""

import json
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.scripts import Cell, ScriptProblem, from_notebook, to_notebook
from tests.errors import raises

EXAMPLES = Path(__file__).parent / "examples"
SCRIPTS = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.py"))
NOTEBOOKS = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.ipynb"))


def cells_of(text: str) -> list[tuple[str, str]]:
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]


def notebook_of(*cells: tuple[str, str]) -> str:
    content = [{"cell_type": kind, "metadata": {}, "source": source} for kind, source in cells]
    return json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("name", SCRIPTS, ids=str)
def test_a_script_comes_back_character_by_character(name: Path) -> None:
    text = (EXAMPLES / name).read_text()
    notebook = to_notebook(text)
    nbformat.validate(json.loads(notebook))
    assert from_notebook(notebook) == text


def test_a_script_is_cut_between_imports_functions_and_the_rest() -> None:
    cells = cells_of(to_notebook("import a\nimport b\nx = 1\ny = 2\ndef f(): pass\n@g\nclass C: pass\nf()\n"))
    assert [source for _, source in cells] == [
        "import a\nimport b", "x = 1\ny = 2", "def f(): pass", "@g\nclass C: pass", "f()",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NOTEBOOKS, ids=str)
def test_a_notebooks_cells_come_back_and_its_script_is_python(name: Path) -> None:
    text = (EXAMPLES / name).read_text()
    script = from_notebook(text)
    compile(script, str(name), "exec")
    again = to_notebook(script)
    nbformat.validate(json.loads(again))
    assert cells_of(again) == cells_of(text)
    assert from_notebook(again) == script


def test_magics_become_comments_that_keep_their_block_alive() -> None:
    script = from_notebook(
        notebook_of(("code", "if gpu:\n    !nvidia-smi\n%time x = 1\nfiles = !ls\nhelp?\n"))
    )
    assert "    pass  # magic: !nvidia-smi" in script
    assert "\n# magic: %time x = 1\n# magic: files = !ls\n# magic: help?\n" in script
    compile(script, "script", "exec")


def test_cells_in_other_languages_become_comments_as_a_whole() -> None:
    script = from_notebook(notebook_of(("code", "%%bash\nls -l | grep x\nfor f in *; do echo $f; done")))
    assert [line for line in script.splitlines() if line and not line.startswith("#")] == []


def test_cells_that_are_timed_stay_python() -> None:
    script = from_notebook(notebook_of(("code", "%%time\nmodel.fit(x)\n!ls")))
    assert "# magic: %%time\nmodel.fit(x)\n# magic: !ls" in script


def test_lines_in_strings_are_no_magics() -> None:
    cell = 'text = """\n!important\n%d\n"""\n!pip install x'
    script = from_notebook(notebook_of(("code", cell)))
    assert '"""\n!important\n%d\n"""\n# magic: !pip install x' in script


def test_cells_that_are_added_for_a_service_are_no_part_of_the_script() -> None:
    before = [Cell("code", "from google.colab import drive\ndrive.mount('/content/drive')")]
    notebook = to_notebook("import torch\nprint(1)\n", before=before, after=[Cell("markdown", "done")])
    nbformat.validate(json.loads(notebook))
    assert cells_of(notebook)[0] == ("code", before[0].source)
    assert from_notebook(notebook) == "import torch\nprint(1)\n"


def test_comments_stay_with_the_statement_below_them() -> None:
    cells = cells_of(
        to_notebook("import os\n\n# the model\nmodel = 1\n\n\n# trains\ndef train():\n    pass\n")
    )
    assert [source for _, source in cells] == [
        "import os",
        "# the model\nmodel = 1",
        "# trains\ndef train():\n    pass",
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"cells": 3}', "not_a_notebook"),
        ('{"worksheets": [], "cells"', "not_json"),
        ('{"cells": [{"cell_type": "video"}]}', "not_a_notebook"),
        ('{"cells": [17]}', "not_a_notebook"),
        ('{"cells": [17], "metadata": {}, "nbformat": 4}', "not_a_notebook"),
        ('{"cells": 3, "metadata": {}, "nbformat": 4}', "not_a_notebook"),
        (
            '{"cells": [{"cell_type": "x", "metadata": {}}], "metadata": {}, "nbformat": 4}',
            "not_a_notebook",
        ),
        ('{"cells": [], "metadata": 3, "nbformat": 4}', "not_a_notebook"),
        ('{"worksheets": [{"cells": []}], "metadata": {}, "nbformat": 3}', "not_a_notebook"),
        ("[]", "not_a_notebook"),
    ],
)
def test_what_is_no_notebook_is_refused_in_a_sentence(text: str, code: str) -> None:
    with raises(ScriptProblem, code=code):
        from_notebook(text)


LINES = st.sampled_from(
    ["x = 1", "", "!ls", "%matplotlib inline", "# %%", "# %% [markdown]", "# magic: a", "def f():",
     "    return 1", "    !ls", "# text", "y = '''", "%%bash", "z?", "if x:", "    pass  # magic: b",
     "#", "'''", "\\\\%%"]
)  # fmt: skip
CELLS = st.lists(
    st.tuples(
        st.sampled_from(["code", "markdown", "raw"]), st.lists(LINES, min_size=1, max_size=6).map("\n".join)
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(CELLS)
def test_cells_survive_any_text_but_blank_lines_at_their_ends(cells: list[tuple[str, str]]) -> None:
    script = from_notebook(notebook_of(*cells))
    again = to_notebook(script)
    nbformat.validate(json.loads(again))
    assert [(kind, source.rstrip("\n ")) for kind, source in cells_of(again)] == [
        (kind, source.rstrip("\n ")) for kind, source in cells
    ]
