"""The three lines at the top of the documentation, and a checkpoint."""

from pathlib import Path

from gpubloom.traincard import Reporter

with Reporter() as reporter:
    for step in range(30):
        reporter.metric("loss", 1 / (step + 1), step)
        reporter.metrics({"lr": 0.1, "acc": step / 30}, step)
    Path("last.pt").write_text("weights")
    reporter.checkpoint("last.pt", {"note": "last"}, step=29, metrics={"loss": 1 / 30}, best=True)
