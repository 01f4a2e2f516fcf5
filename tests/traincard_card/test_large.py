"""A card of twenty series and a million steps: small, drawn at once, and smooth to zoom."""

import math
import random

import pytest

from gpubloom.traincard.card import render_card
from gpubloom.traincard.series import Curve
from gpubloom.traincard.thinning import line_of
from tests.traincard_card.conftest import OpenCard
from tests.traincard_card.example import example_snapshot

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.long]

SERIES, STEPS, POINTS = 20, 1_000_000, 2_000

# The frame after the newest canvas: by then the charts on the screen are drawn.
_DRAWN = """new MutationObserver((changes) => {
  if (changes.some((one) => [...one.addedNodes].some((node) => node.querySelector?.("canvas")))) {
    requestAnimationFrame(() => setTimeout(() => { window.drawnAt = performance.now(); }));
  }
}).observe(document, { childList: true, subtree: true });"""

_ZOOM = """async () => {
  const tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask" });
  const over = document.querySelector(".chart .u-over");
  const box = over.getBoundingClientRect();
  const send = (type, part) => over.dispatchEvent(new MouseEvent(type, {
    bubbles: true, clientX: box.left + box.width * part, clientY: box.top + 60, button: 0, buttons: 1,
  }));
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)));
  for (let turn = 0; turn < 8; turn += 1) {
    send("mousemove", 0.3); send("mousedown", 0.3);
    for (const part of [0.4, 0.5, 0.6]) { send("mousemove", part); await frame(); }
    send("mouseup", 0.6);
    await frame(); await frame();
    if (turn % 4 === 3) { send("dblclick", 0.5); await frame(); }
  }
  await new Promise((done) => setTimeout(done, 800));
  return tasks;
}"""


def _large_card() -> str:
    random.seed(1)
    snapshot = example_snapshot(points=POINTS, gpus=8)
    snapshot["metrics"] = []
    for number in range(SERIES):
        curve = Curve()
        for step in range(STEPS):
            curve.add(step, 2 * math.exp(-step / 3e5) + random.random() / 10, step / 50)
        name = f"train/series_{number}" if number else "train/loss"
        last = {"step": STEPS - 1, "value": 0.1}
        line = {"attempt": 1, "rank": 0, **line_of(curve, POINTS)}
        snapshot["metrics"].append(
            {"name": name, "title": name, "group": "other", "last": last, "best": None, "lines": [line]}
        )
    return render_card(snapshot)


def test_a_card_of_a_million_steps_is_small_and_draws_and_zooms_without_a_halt(open_card: OpenCard) -> None:
    html = _large_card()
    assert len(html.encode()) <= 3_000_000
    page = open_card(html)
    page.add_init_script(_DRAWN)
    page.reload()
    page.wait_for_selector("#metric-loss canvas")
    page.wait_for_timeout(1_500)
    drawn = page.evaluate("window.drawnAt")
    tasks = page.evaluate(_ZOOM)
    print(f"{len(html) / 1e6:.2f} MB, drawn after {drawn:.0f} ms, tasks over 50 ms while zooming: {tasks}")
    assert drawn < 1_000
    assert max(tasks, default=0) <= 100
