"""The script of a run: complete, and honest about who trains."""

import ast

import pytest

from gpubloom.plan import Hardware, TrainConfig, plan, run_files

MACHINE = Hardware(host_memory_bytes=64 << 30, cpu_cores=8)


def files_of(tiny_folder: str | None, **fields: object) -> dict[str, str]:
    model = {} if tiny_folder is None else {"model": {"path": tiny_folder}}
    config = TrainConfig.model_validate({"device": "cpu", **model, **fields})
    # What is expected of a run depends on a model that is there; the script does not.
    expected = plan(TrainConfig(device="cpu"), MACHINE)
    return run_files(config, expected, "1.2.3")


@pytest.mark.parametrize(
    ("backend", "method", "trainer", "requirements"),
    [
        ("engine", "full", "GPU Bloom's engine", "gpubloom[train]==1.2.3\n"),
        ("engine", "qlora", "GPU Bloom's engine", "gpubloom[train]==1.2.3\n"),
        ("trl", "lora", "with TRL;", "gpubloom[trl]==1.2.3\n"),
        ("trl", "qlora", "with TRL;", "gpubloom[trl]==1.2.3\nbitsandbytes\n"),
        ("unsloth", "lora", "TRL and Unsloth", "gpubloom[trl]==1.2.3\nunsloth\n"),
    ],
)
def test_a_run_says_who_trains_it_and_what_that_needs(
    backend: str, method: str, trainer: str, requirements: str
) -> None:
    files = files_of("/models/some", backend=backend, method=method)
    assert trainer in files["train.py"]
    assert files["requirements.txt"] == requirements


@pytest.mark.parametrize("backend", ["engine", "trl", "unsloth"])
def test_the_script_imports_only_what_is_there_and_trains_what_config_json_says(backend: str) -> None:
    import importlib

    script = files_of("/models/some", backend=backend, method="lora")["train.py"]
    imported = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.ImportFrom)]
    for node in imported:
        assert node.module is not None
        module = importlib.import_module(node.module)
        assert all(hasattr(module, name.name) for name in node.names)
    assert "session.config" in script
    assert "trainer.resume()" in script
    assert max(map(len, script.splitlines())) <= 110


def test_unsloth_is_given_one_example_a_row_and_the_script_says_why() -> None:
    script = files_of("/models/some", backend="unsloth", method="lora")["train.py"]
    assert '"packing": False' in script
    assert "# No packing: Unsloth's attention" in script
