"""The page of figures shows what was recorded, and nothing else."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_and_its_pictures_follow_from_the_recorded_results() -> None:
    drawn = runpy.run_path(str(ROOT / "bench" / "draw.py"))["drawn"]()
    stale = [str(path.relative_to(ROOT)) for path, text in drawn.items() if path.read_text() != text]
    assert stale == [], "run `python bench/draw.py`"
