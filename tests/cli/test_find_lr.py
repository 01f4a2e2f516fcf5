"""`bloom models find-lr` as a person uses it: one real search, shown and as JSON."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from gpubloom.cli.find_lr import _show
from tests.cli.test_train import SMALL, TEXT, bloom
from tests.errors import printed

SETTINGS = [each for each in SMALL if each not in {"--epochs", "1"}]

# Together, so that one search does for all.
pytestmark = pytest.mark.xdist_group("bloom models find-lr")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a search answered as JSON; it must leave nothing behind."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "text.txt").write_text(TEXT)
    done = bloom(
        "models", "find-lr", "--train-path", "text.txt", *SETTINGS, "--steps", "30", "--json", folder=folder
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["text.txt"]
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_a_search_answers_with_a_curve_and_a_rate(searched: dict[str, object]) -> None:
    points, suggested = searched["points"], searched["suggested"]
    assert isinstance(points, list)
    assert len(points) == 30
    assert set(points[0]) == {"learning_rate", "loss", "smoothed"}
    assert isinstance(suggested, float)
    assert 1e-6 < suggested < 1e-1


def test_the_curve_is_drawn_over_powers_of_ten(searched: dict[str, object]) -> None:
    console = Console(width=80, record=True, color_system=None)
    _show(searched, console)
    lines = console.export_text().splitlines()
    across = next(line for line in lines if "1e-06" in line)
    assert across.split() == ["1e-06", "1e-01"]
    assert len(across) <= 80
    assert lines[-1] == f"Suggested: --set learning_rate={searched['suggested']:g}"


def test_wrong_input_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    done = bloom("models", "find-lr", "--train-path", "text.txt", "--highest", "1e-6", folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == ["rates_too_close"]


def test_a_model_without_examples_is_refused(tmp_path: Path) -> None:
    done = bloom("models", "find-lr", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == ["no_data"]


@pytest.mark.long
def test_a_model_and_a_file_of_examples_are_taken_as_in_finetune(tmp_path: Path) -> None:
    from tests.tiny_models import make_tiny_model

    model = make_tiny_model(tmp_path / "model")
    rows = [json.dumps({"prompt": f"What is {n}?", "completion": f"It is {n}."}) for n in range(40)]
    (tmp_path / "examples.jsonl").write_text("\n".join(rows))
    done = bloom("models", "find-lr", "model", "examples.jsonl", "--steps", "12", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["points"]) == 12
    assert model.is_dir()
