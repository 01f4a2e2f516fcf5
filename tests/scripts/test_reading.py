"""What cannot be read is said in a sentence; whatever is pasted in, reading ends soon and runs nothing."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.scripts import Requirements, ScriptProblem, detect
from tests.errors import raises

NASTY = {
    "many minuses": "x = " + "-" * 50_000 + "1",
    "a long sum": "x = " + "+".join(["a"] * 50_000),
    "a long chain of attributes": "x = a" + ".b" * 50_000,
    "a long chain of calls": "f" + "()" * 50_000,
    "a long chain of indices": "x" + "[0]" * 20_000,
    "deep brackets": "(" * 150 + "1" + ")" * 150,
    "too deep brackets": "[" * 5_000 + "]" * 5_000,
    "many nots": "not " * 30_000 + "1",
    "nested lambdas": "lambda: " * 15_000 + "1",
    "a tower of conditions": "x = " + "1 if a else " * 10_000 + "1",
    "a tower of powers": "x = " + "9**" * 5_000 + "9",
    "a power that fills memory": "batch_size = 9**9**9**9\nn_layer = 10**1000000\n",
    "a shift that fills memory": "batch_size = 1 << 10**12\nname = 'a' * 10**12\n",
    "many elifs": "if a:\n pass\n" + "elif a:\n pass\n" * 9_000,
    "an f-string of many parts": 'x = f"' + "{a}" * 20_000 + '"',
    "an f-string over many lines": 'x = f"""' + "{a}\n" * 30_000 + '"""',
    "an f-string that does not end": 'x = f"""' + "{a}\n" * 30_000,
    "names that double": "epochs = a28\na0 = 1\n" + "".join(f"a{i + 1} = a{i} + a{i}\n" for i in range(28)),
    "names in a circle": "batch_size = epochs\nepochs = max_iters\nmax_iters = batch_size\n",
    "a name that is itself": "batch_size = batch_size * 2",
    "many keywords": "f(" + ",".join(f"a{i}=1" for i in range(10_000)) + ")",
    "many calls": "torch.save(x)\n" * 9_000,
    "many loops": "".join(f"for i{i} in range(10): pass\n" for i in range(4_000)),
    "deep loops": "".join(" " * i + f"for i{i} in range(9):\n" for i in range(90)) + " " * 90 + "x.step()",
    "a long number": "batch_size = " + "9" * 4_000,
    "a number that is too long": "batch_size = " + "9" * 100_000,
    "a zero byte": "a = 1\0",
    "half a string": "x = '''" + "a" * 100_000,
    "no Python at all": "\x7fELF" + "\x00\xff" * 1000,
    "long comments": ("# " + "magic: !" * 1_000 + "\n") * 20,
    "an argument list": "parser.add_argument(" + '"--a", ' * 5_000 + "default=1)",
    "a model of absurd size": "GPT(n_layer=10**9, n_embd=10**9, n_head=3)",
    "a batch of absurd size": (
        "import torch\nGPT(n_layer=2, n_embd=64)\nx.backward()\n"
        "batch_size = 10**14\nblock_size = 10**14\nmax_iters = 10**14\n"
    ),
    "less than nothing": "batch_size = -5\nmax_iters = 0\nepochs = float('nan')\ngpus = -1",
    "a notebook of nothing": '{"cells": [null, 1, {}]}',
    "a notebook in a notebook": '{"cells": ' + "[" * 5_000 + "]" * 5_000 + "}",
}  # fmt: skip


def read_or_refused(text: str) -> Requirements | ScriptProblem:
    try:
        return detect(text)
    except ScriptProblem as problem:
        return problem


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.timeout(60)  # seconds on one slow core; what is wrong takes minutes
def test_nasty_text_is_read_or_refused_soon(name: str) -> None:
    found = read_or_refused(NASTY[name])
    if isinstance(found, ScriptProblem):
        assert str(found).endswith(".")
    else:
        assert found.gpus.value >= 0
        assert 0 <= found.gpu_memory_gb.value < 1e12


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300) | st.text(alphabet="()[]{}:=,.'\"\n #!%fabc019+-*/", max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_or_refused(text)
    assert isinstance(found, Requirements) or str(found)


def test_a_script_that_does_not_parse_is_refused_with_its_line() -> None:
    with raises(ScriptProblem, code="not_python", match="line 3") as caught:
        detect("import torch\nbatch_size = 3\nfor i in range(10)\n    pass\n")
    assert caught.value.line == 3


def test_a_script_that_is_too_long_is_refused_with_its_length() -> None:
    with raises(ScriptProblem, code="script_too_large", match="300,000"):
        detect("#" * 300_000)


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "it-ran"
    where = repr(str(trap))
    detect(f"open({where}, 'w').write('x')\n__import__('os').mkdir({where} + 'd')\nbatch_size = 1 / 0")
    assert list(tmp_path.iterdir()) == []


def test_strings_and_comments_are_no_code() -> None:
    found = detect('# n_layer = 48, batch_size = 512\ntext = """\nbatch_size = 64\nimport torch\n"""\n')
    assert (found.batch, found.parameters, found.frameworks) == (None, None, ())
    assert found.gpus.value == 0


def test_a_later_unconditional_value_counts_and_one_under_a_condition_only_alone() -> None:
    found = detect(
        "import torch\nbatch_size = 8\nbatch_size = 16\nif debug:\n    batch_size = 1\n    epochs = 2\n"
    )
    assert found.batch is not None
    assert found.epochs is not None
    assert (found.batch.value, found.batch.confidence, found.batch.evidence[0].line) == (16, "stated", 3)
    assert (found.epochs.value, found.epochs.confidence) == (2, "derived")


def test_a_module_beside_the_script_counts_less_than_the_script() -> None:
    module = "batch_size = 4\nblock_size = 77\n"
    found = detect(
        "import torch\nfrom settings import block_size\nbatch_size = 2\n", files={"settings.py": module}
    )
    assert found.batch is not None
    assert found.sequence is not None
    assert found.batch.value == 2
    assert (found.sequence.value, found.sequence.evidence[0].file) == (77, "settings.py")
    assert [each.value for each in found.packages] == ["torch"]


def test_a_file_beside_it_that_cannot_be_read_is_left_out_and_said() -> None:
    found = detect("import torch\n", files={"model.py": "def broken(:\n", "ds.json": "{"})
    assert any("model.py" in note and "line 1" in note for note in found.notes)
    assert any("ds.json" in note for note in found.notes)


def test_deepspeed_settings_come_from_a_file_beside_the_script() -> None:
    config = '{\n "train_micro_batch_size_per_gpu": 6,\n "bf16": {"enabled": true},\n "fp16": "auto"\n}'
    found = detect("import deepspeed\nengine.backward(loss)\n", files={"ds_config.json": config})
    assert found.batch is not None
    assert found.dtype is not None
    assert (found.batch.value, found.batch.evidence[0].file, found.batch.evidence[0].line) == (
        6,
        "ds_config.json",
        2,
    )
    assert found.dtype.value == "bf16"


def test_the_command_line_wins_over_everything() -> None:
    text = (
        "import torch\np.add_argument('--batch-size', type=int, default=4)\nb = p.parse_args().batch_size\n"
    )
    for arguments in (["--batch-size=32"], ["--batch-size", "32"]):
        found = detect(text, arguments=arguments)
        assert found.batch is not None
        assert (found.batch.value, found.batch.evidence[0].file) == (32, "command line")


def test_several_configs_beside_a_script_are_named_and_none_is_chosen() -> None:
    configs = {f"config/{name}.py": f"batch_size = {size}\n" for name, size in (("a", 1), ("b", 2))}
    text = "import torch\nbatch_size = 12\nexec(open('configurator.py').read())\n"
    found = detect(text, files=configs)
    assert found.batch is not None
    assert found.batch.value == 12
    assert any("config/a.py" in note and "config/b.py" in note for note in found.notes)
    chosen = detect(text, files=configs, arguments=["config/b.py"])
    assert chosen.batch is not None
    assert (chosen.batch.value, chosen.batch.evidence[0].file) == (2, "config/b.py")


def test_requirements_that_are_written_down_come_before_imports() -> None:
    text = "import torch\nimport cv2\nimport yaml\nimport os\nfrom PIL import Image\n"
    found = detect(text, files={"requirements.txt": "torch==2.4.0  # cuda\n-r other.txt\n\nPillow\n"})
    by_name = {each.value: each for each in found.packages}
    assert list(by_name) == ["torch==2.4.0", "Pillow", "opencv-python-headless", "PyYAML"]
    assert (by_name["torch==2.4.0"].confidence, by_name["PyYAML"].confidence) == ("stated", "derived")


@pytest.mark.parametrize(("content", "code"), [(b"\xff\xfe\x00", "not_utf8"), (None, "unreadable_file")])
def test_a_file_that_is_no_text_or_not_there_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, code: str
) -> None:
    path = tmp_path / "train.py"
    if content is not None:
        path.write_bytes(content)
    with raises(ScriptProblem, code=code, match=r"train\.py"):
        detect(path)
