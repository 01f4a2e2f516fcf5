"""OpenMetrics text: checked against the format's grammar, line by line."""

import math
import re
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, load_latest
from gpubloom.traincard.interop import openmetrics_text, write_openmetrics

_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (gauge)")
_HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n]|\\[\\n\"])*)")
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
_SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)\{{({_LABEL}(?:,{_LABEL})*)\}} (NaN|[+-]Inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)


def parse(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """A strict reader of the part of the format that is used: types first, families whole, no duplicates."""
    assert text.endswith("# EOF\n")
    lines = text[: -len("# EOF\n")].splitlines()
    assert "# EOF" not in lines
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    seen: list[str] = []
    for line in lines:
        if match := _TYPE.fullmatch(line):
            assert match[1] not in seen, "a family comes once, whole"
            seen.append(match[1])
        elif match := _HELP.fullmatch(line):
            assert match[1] == seen[-1]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"not a line of the format: {line!r}"
            assert match[1] == seen[-1]
            labels = tuple(
                (name, re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value))
                for name, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2])
            )
            assert (match[1], labels) not in found
            found[match[1], labels] = float(match[3].replace("Inf", "inf"))
    return found


def test_the_state_of_a_run_becomes_valid_text_beside_latest_json(tmp_path: Path) -> None:
    run_dir = tmp_path / "first run"
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.progress(10, 100, epoch=0.5, epochs=5)
        reporter.metrics({"loss": 1.93, "eval/loss": float("nan"), "grad_norm": float("inf")}, step=10)
        reporter.system({"cpu/utilization": 41.0, "gpu/1/temperature": 63})
    latest = load_latest(run_dir)
    assert latest is not None
    path = write_openmetrics(run_dir, latest)
    assert path == run_dir / "traincard/metrics.prom"
    found = parse(path.read_text())
    run = ("run", "first run")
    assert found["bloom_series_value", (run, ("series", "train/loss"))] == 1.93
    assert math.isnan(found["bloom_series_value", (run, ("series", "eval/loss"))])
    assert found["bloom_series_value", (run, ("series", "train/grad_norm"))] == math.inf
    assert found["bloom_series_step", (run, ("series", "train/loss"))] == 10
    assert found["bloom_run_step", (run,)] == 10
    assert found["bloom_run_steps_planned", (run,)] == 100
    assert found["bloom_system_value", (run, ("name", "gpu/temperature"), ("gpu", "1"))] == 63
    statuses = {labels[1][1]: value for (name, labels), value in found.items() if name == "bloom_run_status"}
    assert statuses["completed"] == 1
    assert sum(statuses.values()) == 1
    # What is not known is absent, not zero.
    assert ("bloom_run_eta_seconds", (run,)) not in found


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a{b=1}", "# EOF", "ä/ß", "", "x" * 5000, "\udc80"])
def test_any_name_is_escaped(name: str) -> None:
    text = openmetrics_text({"values": {name: {"step": 1, "value": 2.5}}}, run=name)
    expected = name.encode("utf-8", "replace").decode()
    found = parse(text)
    assert found["bloom_series_value", (("run", expected), ("series", expected))] == 2.5


def test_ten_thousand_series_are_one_family() -> None:
    values = {f"train/expert_{n}": {"step": n, "value": float(n)} for n in range(10_000)}
    text = openmetrics_text({"values": values}, run="r")
    assert text.count("# TYPE bloom_series_value gauge") == 1
    assert sum(name == "bloom_series_value" for name, _ in parse(text)) == 10_000


def test_a_reporter_keeps_the_file_up_to_date_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reporter(tmp_path / "without", telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, step=1)
    assert not (tmp_path / "without/traincard/metrics.prom").exists()
    monkeypatch.setenv("BLOOM_OPENMETRICS", "on")
    with Reporter(tmp_path / "with", telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.5, step=1)
    found = parse((tmp_path / "with/traincard/metrics.prom").read_text())
    assert found["bloom_series_value", (("run", "with"), ("series", "train/loss"))] == 1.5


def test_an_empty_state_is_still_valid() -> None:
    parse(openmetrics_text({}, run="r"))


def test_prometheus_own_parser_agrees() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    state = {"status": "running", "values": {'a"\\\n': {"step": 1, "value": "NaN"}}, "dropped": {"metric": 3}}
    families = list(parser.text_string_to_metric_families(openmetrics_text(state, run="r")))
    assert {family.name for family in families} >= {"bloom_run_status", "bloom_series_value"}
