"""The page of figures shows what was recorded, and nothing else."""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

# Prints a line for each row, as the programs of bench/ do.
PROGRAM = """
import json, sys
rows = [each for each in sys.argv[1:] if ":" in each and each != "lost:1"]
for row in rows:
    print(json.dumps({"row": row, "tokens_per_s": 10 * len(sys.argv), "options": sys.argv[1:]}))
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    published, draw = (runpy.run_path(str(ROOT / "bench" / name)) for name in ("published.py", "draw.py"))
    yield SimpleNamespace(published=published, draw=draw)
    sys.modules.pop("published", None)


def test_the_page_and_its_pictures_follow_from_the_recorded_results(bench: SimpleNamespace) -> None:
    drawn = bench.draw["drawn"]()
    stale = [str(path.relative_to(ROOT)) for path, text in drawn.items() if path.read_text() != text]
    assert stale == [], "run `python bench/draw.py`"


def test_every_recorded_figure_is_published(bench: SimpleNamespace) -> None:
    groups = bench.published["GROUPS"]
    published = {(group.name, each.work, each.name) for group in groups for each in group.figures}
    assert set(bench.draw["recorded"]()) <= published


def test_the_newest_of_several_values_is_shown(bench: SimpleNamespace, tmp_path: Path) -> None:
    for date, value in (("2026-02-01", 2.0), ("2026-01-31", 1.0)):
        entry = {"group": "g", "work": "w", "name": "n", "value": value}
        (tmp_path / f"h200-{date}.json").write_text(json.dumps({"date": date, "figures": [entry]}))
    assert bench.draw["recorded"](tmp_path) == {("g", "w", "n"): (2.0, "2026-02-01")}


def test_one_program_measures_all_its_rows_and_the_limit_comes_beside_them(
    bench: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure: Any = bench.published["Figure"]
    measured, wanted = bench.published["measured"], bench.published["wanted"]
    (tmp_path / "program.py").write_text(PROGRAM)
    measured.__globals__["BENCH"] = tmp_path
    figures = [
        figure("a", "ours", "program.py ours:1 --steps 3"),
        figure("b", "ours", "program.py ours:2 --steps 3"),
        figure("b", "a peer", "program.py peer:2", needs="a_package_that_nobody_has"),
        figure("c", "ours", "program.py lost:1"),
        figure("a", "by hand"),
        figure("a", "limit", operations=4.0),
    ]
    found = list(measured(wanted(figures, None), None, 1_000.0))
    # Four arguments and the program's own name: both rows came in one call.
    assert [(each.work, each.name, value) for each, value in found] == [
        ("a", "ours", 50),
        ("b", "ours", 50),
        ("a", "limit", 250.0),
    ]
    said = capsys.readouterr().out
    assert "a peer is not here" in said
    assert "No figure" in said
    assert "lost:1" in said
