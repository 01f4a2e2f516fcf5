"""Draws the published results as pictures, and writes the tables of docs/performance.md.

python bench/draw.py            # after a file in bench/results/ has changed
"""

import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "h200-2026-11-18.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- drawn by bench/draw.py -->", "<!-- end -->"
OURS, LIMIT = ("#7c3aed", "#b79cf3", "#5b21b6"), "#d4d4d8"
PEERS = ("#0f766e", "#b45309", "#2563eb")
LEFT, BARS, BAR, GAP, TITLE = 260, 560, 20, 16, 40


def colours(names: list[str]) -> dict[str, str]:
    """Ours in violet, each peer in a colour of its own, a limit in grey."""
    ours, peers = iter(OURS), iter(PEERS)
    return {
        name: next(ours)
        if name.startswith("GPU Bloom")
        else LIMIT
        if name.startswith("limit")
        else next(peers)
        for name in names
    }


def series_of(group: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for row in group["rows"] for name in row["values"]))


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def draw(group: dict[str, Any]) -> str:
    """An SVG with a bar for each value; it brings its own ground, so that dark pages show it too."""
    colour = colours(series_of(group))
    longest = max(value for row in group["rows"] for value in row["values"].values())
    parts, y = [], TITLE
    for row in group["rows"]:
        middle = y + BAR * len(row["values"]) / 2 + 5
        parts.append(f'<text x="12" y="{middle:.0f}" font-weight="600">{escape(row["work"])}</text>')
        for name, value in row["values"].items():
            width = max(2.0, BARS * value / longest)
            inside = f"{escape(name)}: {figure(value)} {escape(group['unit'])}"
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" rx="2" '
                f'fill="{colour[name]}"><title>{inside}</title></rect>'
                f'<text x="{LEFT + width + 8:.1f}" y="{y + 13}">{figure(value)}  {escape(name)}</text>'
            )
            y += BAR
        y += GAP
    width = LEFT + BARS + 260
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#18181b">'
        f'<title>{escape(group["title"])}</title><rect width="{width}" height="{y}" fill="#ffffff"/>'
        f'<text x="12" y="24" font-size="15" font-weight="600">{escape(group["title"])}</text>'
        + "".join(parts)
        + "</svg>\n"
    )


def section(group: dict[str, Any]) -> str:
    names = series_of(group)
    lines = [
        f"## {group['title']}",
        "",
        f"![{group['title']}](images/performance-{group['name']}.svg)",
        "",
        f"{group['note']} Ours: {group['date']}, `{group['command']}`.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for row in group["rows"]:
        cells = [figure(row["values"][name]) if name in row["values"] else "–" for name in names]
        lines.append(f"| {row['work']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def drawn() -> dict[Path, str]:
    """Every file that follows from the results, with what belongs in it."""
    groups = json.loads(RESULTS.read_text())["groups"]
    pictures = {
        ROOT / "docs" / "images" / f"performance-{group['name']}.svg": draw(group) for group in groups
    }
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page = f"{before}{BEGIN}\n\n" + "\n".join(section(group) for group in groups) + f"\n{END}{after}"
    return {**pictures, PAGE: page}


if __name__ == "__main__":
    for path, text in drawn().items():
        path.write_text(text)
