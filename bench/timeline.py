"""Draws a trace of bench/engine.py as a picture.

python bench/engine.py 7b:64:stream --trace traces/
python bench/timeline.py traces/trace-qwen2.5-7b-64-stream.json docs/images/timeline.svg --from 5.2 --to 10.6
"""

import argparse
import json
from pathlib import Path
from typing import Any

NAMES = {
    "compute": "GPU computes",
    "copy in": "weights to GPU",
    "state in": "states to GPU",
    "copy out": "to the host",
    "host": "CPU updates",
}
COLOURS = {
    "forward": "#4c78a8",
    "loss": "#f58518",
    "backward": "#54a24b",
    "update": "#b279a2",
    "weights": "#72b7b2",
    "gradient": "#eeca3b",
    "state": "#9d755d",
}
LEFT, WIDTH, ROW, GAP, TOP = 110, 1_060, 34, 10, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--from", dest="begin", type=float, default=0.0, help="seconds")
    parser.add_argument("--to", dest="end", type=float, help="seconds")
    options = parser.parse_args()
    spans = json.loads(options.trace.read_text())
    end = options.end if options.end is not None else max(span["end"] for span in spans)
    options.picture.write_text(draw(spans, options.begin, end))


def draw(spans: list[dict[str, Any]], begin: float, end: float) -> str:
    """An SVG with one row per lane; light and dark pages both show it, since it brings its own ground."""
    # Only some placements send states.
    lanes = [lane for lane in NAMES if any(span["lane"] == lane for span in spans)]
    height = TOP + len(lanes) * (ROW + GAP) + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{LEFT + WIDTH + 20}" height="{height}" fill="#ffffff"/>',
    ]
    scale = WIDTH / (end - begin)
    for row, lane in enumerate(lanes):
        y = TOP + row * (ROW + GAP)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 22}" text-anchor="end" fill="#333">{NAMES[lane]}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW}" fill="#f2f2f2"/>')
        for span in spans:
            if span["lane"] != lane or span["end"] <= begin or span["begin"] >= end:
                continue
            x = LEFT + (max(span["begin"], begin) - begin) * scale
            width = max(0.6, (min(span["end"], end) - max(span["begin"], begin)) * scale - 0.4)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" '
                f'fill="{COLOURS[span["what"]]}"><title>{span["what"]} of block {span["block"]}: '
                f"{(span['end'] - span['begin']) * 1e3:.1f} ms</title></rect>"
            )
    y = TOP + len(lanes) * (ROW + GAP)
    for number in range(6):
        x, seconds = LEFT + WIDTH * number / 5, (end - begin) * number / 5
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y + 5}" stroke="#777"/>')
        parts.append(f'<text x="{x}" y="{y + 20}" text-anchor="middle" fill="#333">{seconds:.2f} s</text>')
    x = LEFT
    for what, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="{y + 34}" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="{y + 46}" fill="#333">{what}</text>')
        x += 44 + 8 * len(what)
    return "\n".join((*parts, "</svg>", ""))


if __name__ == "__main__":
    main()
