"""Draws the published results as pictures, and writes the tables of docs/performance.md.

python bench/draw.py            # after a file in bench/results/ has changed
"""

import json
import sys
from itertools import cycle
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from published import GROUPS, Group  # noqa: E402 - beside this file

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- drawn by bench/draw.py -->", "<!-- end -->"
OURS, LIMIT = ("#7c3aed", "#b79cf3", "#5b21b6"), "#d4d4d8"
PEERS = ("#0f766e", "#b45309", "#2563eb")
LEFT, BARS, BAR, GAP, TITLE = 260, 560, 20, 16, 40


def _kind(name: str) -> int:
    """Ours first, then peers, then limits."""
    return 0 if name.startswith("GPU Bloom") else 2 if name.startswith("limit") else 1


def colours(names: list[str]) -> dict[str, str]:
    """Ours in violet, each peer in a colour of its own, a limit in grey."""
    ours, peers = cycle(OURS), cycle(PEERS)
    return {
        name: next(ours)
        if name.startswith("GPU Bloom")
        else LIMIT
        if name.startswith("limit")
        else next(peers)
        for name in names
    }


def recorded(folder: Path = RESULTS) -> dict[tuple[str, str, str], tuple[float, str]]:
    """The newest value of each figure, and its date: by group, work and name."""
    found = {}
    for path in sorted(folder.glob("h200-*.json")):
        run = json.loads(path.read_text())
        for entry in run["figures"]:
            found[entry["group"], entry["work"], entry["name"]] = (entry["value"], run["date"])
    return found


class Table:
    """What was recorded of a group, row by row, in the order of the group's figures."""

    def __init__(self, group: Group, values: dict[tuple[str, str, str], tuple[float, str]]) -> None:
        self.group = group
        self.rows: dict[str, dict[str, float]] = {}
        self.dates: set[str] = set()
        for figure in group.figures:
            if entry := values.get((group.name, figure.work, figure.name)):
                self.rows.setdefault(figure.work, {})[figure.name] = entry[0]
                self.dates.add(entry[1])
        names = dict.fromkeys(name for row in self.rows.values() for name in row)
        self.names = sorted(names, key=_kind)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def draw(table: Table) -> str:
    """An SVG with a bar for each value; it brings its own ground, so that dark pages show it too."""
    group, colour = table.group, colours(table.names)
    parts, y = [], TITLE
    # Rows of one unit that differ tenfold are each drawn by themselves.
    longest_of = {work: max(row.values()) for work, row in table.rows.items()}
    together = max(longest_of.values()) < 10 * min(longest_of.values())
    for work, row in table.rows.items():
        longest = max(longest_of.values()) if together else longest_of[work]
        middle = y + BAR * len(row) / 2 + 5
        parts.append(f'<text x="12" y="{middle:.0f}" font-weight="600">{escape(work)}</text>')
        for name, value in row.items():
            width = max(2.0, BARS * value / longest)
            inside = f"{escape(name)}: {figure(value)} {escape(group.unit)}"
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
        f'<title>{escape(group.title)}</title><rect width="{width}" height="{y}" fill="#ffffff"/>'
        f'<text x="12" y="24" font-size="15" font-weight="600">{escape(group.title)}</text>'
        + "".join(parts)
        + "</svg>\n"
    )


def section(table: Table) -> str:
    group, dates = table.group, sorted(table.dates)
    measured = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    lines = [
        f"## {group.title}",
        "",
        f"![{group.title}](images/performance-{group.name}.svg)",
        "",
        f"{group.note} Measured {measured}; to measure again: `python bench/published.py {group.name}`.",
        "",
        "| | " + " | ".join(table.names) + " |",
        "|---|" + "---:|" * len(table.names),
    ]
    for work, row in table.rows.items():
        cells = [figure(row[name]) if name in row else "–" for name in table.names]
        lines.append(f"| {work} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def drawn() -> dict[Path, str]:
    """Every file that follows from the results, with what belongs in it."""
    values = recorded()
    tables = [table for table in (Table(group, values) for group in GROUPS) if table.rows]
    images = ROOT / "docs" / "images"
    pictures = {images / f"performance-{table.group.name}.svg": draw(table) for table in tables}
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page = f"{before}{BEGIN}\n\n" + "\n".join(section(table) for table in tables) + f"\n{END}{after}"
    return {**pictures, PAGE: page}


if __name__ == "__main__":
    for path, text in drawn().items():
        path.write_text(text)
