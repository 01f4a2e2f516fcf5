"""The guides show our prices, capabilities, templates and labels."""

import re
from pathlib import Path

from gpubloom.offers import load_prices
from gpubloom.providers.registry import provider_names, provider_spec
from gpubloom.scripts.templates import templates

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))


def table_after(mark: str) -> list[list[str]]:
    text = (DOCS / "guides" / "providers.md").read_text()
    lines = text.partition(f"<!-- {mark}:")[2].splitlines()[1:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [row for row in rows if not set("".join(row)) <= {"-"}]


def test_there_are_guides_for_what_people_ask() -> None:
    assert [guide.stem for guide in GUIDES] == ["costs", "first-job", "migrating", "providers"]


def test_the_capabilities_in_the_guide_are_those_of_the_providers() -> None:
    head, *rows = table_after("capabilities")
    assert len(head) == 6
    told = {row[0]: [cell == "yes" for cell in row[1:]] for row in rows}
    names = ("runs_unattended", "live_prices", "several_gpus", "several_nodes", "spot")
    # What is compared are services with a price; a cluster of one's own has none.
    services = [name for name in provider_names() if name in load_prices().providers]
    real = {
        name: [getattr(provider_spec(name).capabilities, each).can for each in names] for name in services
    }
    assert told == real


def test_the_prices_in_the_guide_are_those_of_the_table() -> None:
    (_, *services), (_, *dates), *rows = table_after("prices")
    prices = [row for row in load_prices().rows if row.region is None and row.kind != "free"]
    for column, (service, day) in enumerate(zip(services, dates, strict=True), start=1):
        mine = [row for row in prices if row.provider == service]
        assert min(row.read_on for row in mine).isoformat() == day, service
        for gpu, *_ in rows:
            there = [row for row in mine if row.gpu == gpu]
            shown = next(row[column] for row in rows if row[0] == gpu)
            if not there:
                assert shown == "", f"{gpu} at {service}"
                continue
            cheapest = min(there, key=lambda row: row.hourly / row.gpus)
            mark = "*" if cheapest.assumed else ""
            assert shown == f"{cheapest.hourly / cheapest.gpus:.2f}{mark}", f"{gpu} at {service}"


def test_the_first_job_names_templates_and_labels_that_the_web_app_shows() -> None:
    text = (DOCS / "guides" / "first-job.md").read_text()
    titles = {template.title for template in templates()}
    named = set(re.findall(r"template \*\*(.+?)\*\*", text))
    assert named
    assert named <= titles
    pages = "\n".join(
        path.read_text() for path in (DOCS.parent / "ui" / "src").rglob("*.tsx") if ".test." not in path.name
    )
    labels = set(re.findall(r"\*\*(.+?)\*\*", text)) - titles
    assert labels
    missing = {label for label in labels if not re.search(rf"\b{re.escape(label)}\b", pages)}
    assert missing == set()
