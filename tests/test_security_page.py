"""docs/security.md is complete and true: every requirement once, and every file and test that it names."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/security.md"
# The requirements of OWASP ASVS 5.0 with level 1 or 2, by section.
ASVS = """
1.1: 1-2; 1.2: 1-9; 1.3: 1-11; 1.4: 1-3; 1.5: 1-2; 2.1: 1-3; 2.2: 1-3; 2.3: 1-4; 2.4: 1; 3.2: 1-2;
3.3: 1-4; 3.4: 1-6; 3.5: 1-5; 3.7: 1-2; 4.1: 1-3; 4.2: 1; 4.3: 1-2; 4.4: 1-4; 5.1: 1; 5.2: 1-3;
5.3: 1-2; 5.4: 1-3; 6.1: 1-3; 6.2: 1-12; 6.3: 1-4; 6.4: 1-4; 6.5: 1-5; 6.6: 1-3; 6.8: 1-4;
7.1: 1-3; 7.2: 1-4; 7.3: 1-2; 7.4: 1-5; 7.5: 1-2; 7.6: 1-2; 8.1: 1-2; 8.2: 1-3; 8.3: 1; 8.4: 1;
9.1: 1-3; 9.2: 1-4; 10.1: 1-2; 10.2: 1-2; 10.3: 1-4; 10.4: 1-11; 10.5: 1-5; 10.6: 1-2; 10.7: 1-3;
11.1: 1-2; 11.2: 1-3; 11.3: 1-3; 11.4: 1-4; 11.5: 1; 11.6: 1; 12.1: 1-3; 12.2: 1-2; 12.3: 1-4;
13.1: 1; 13.2: 1-5; 13.3: 1-2; 13.4: 1-5; 14.1: 1-2; 14.2: 1-4; 14.3: 1-3; 15.1: 1-3; 15.2: 1-3;
15.3: 1-7; 16.1: 1; 16.2: 1-5; 16.3: 1-4; 16.4: 1-3; 16.5: 1-3; 17.1: 1; 17.2: 1-4; 17.3: 1-2
"""
# A path, in contrast to an address, an option or a header.
_FILE = re.compile(r"`([\w-]+(?:/[\w.-]+)+|[\w-]+\.(?:py|md|lock|toml))`")


class Row(NamedTuple):
    number: str
    words: str
    where: str
    test: str


def requirements() -> list[str]:
    found = []
    for part in ASVS.replace("\n", " ").split(";"):
        section, _, numbers = part.strip().partition(": ")
        for span in numbers.split():
            first, _, last = span.partition("-")
            found += [f"{section}.{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def rows() -> list[Row]:
    found = re.findall(r"^\| (\d+\.\d+\.\d+) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return [Row(*cells) for cells in found]


def test_every_requirement_is_there_once_and_in_order() -> None:
    assert [row.number for row in rows()] == requirements()


def test_the_summary_counts_the_rows() -> None:
    text = " ".join(PAGE.read_text().split())
    found = re.search(
        r"(\d+) requirements: (\d+) are met, (\d+) in part \((.*?)\), (\d+) not \((.*?)\); (\d+) do not", text
    )
    assert found is not None
    in_part = [row.number for row in rows() if row.where.startswith("**In part:**")]
    not_met = [row.number for row in rows() if row.where.startswith("**Not met:**")]
    other = [row.number for row in rows() if row.where.startswith("Does not apply")]
    met = len(rows()) - len(in_part) - len(not_met) - len(other)
    assert found.groups() == (
        str(len(rows())),
        str(met),
        str(len(in_part)),
        ", ".join(in_part),
        str(len(not_met)),
        ", ".join(not_met),
        str(len(other)),
    )


def test_what_is_met_has_a_test_or_is_a_matter_of_documentation() -> None:
    free = ("Does not apply", "**Not met:**", "**In part:**", "Operator")
    untested = [
        row.number
        for row in rows()
        if row.test == "–" and not row.where.startswith(free)
        if "`docs/" not in row.where and "SECURITY.md" not in row.where and "(#" not in row.where
    ]
    # A rule of style that no test can state.
    assert untested == ["15.3.6"]


def test_the_web_app_writes_no_html_and_takes_no_messages_of_other_windows() -> None:
    refused = re.compile(r"innerHTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write|postMessage")
    sources = [path for path in (ROOT / "ui/src").rglob("*.ts*") if ".test." not in path.name]
    assert len(sources) > 100
    assert [str(path) for path in sources if refused.search(path.read_text())] == []


def _named() -> Iterator[tuple[str, str]]:
    for row in rows():
        for name in _FILE.findall(row.where):
            yield row.number, name
        for name in re.findall(r"`([^`]+)`", row.test):
            yield row.number, f"tests/{name}"


@pytest.mark.parametrize(("number", "name"), sorted(set(_named())))
def test_a_file_that_the_page_names_exists(number: str, name: str) -> None:
    path, _, test = name.partition("::")
    found = [folder / path for folder in (ROOT, ROOT / "src/gpubloom") if (folder / path).exists()]
    assert found, f"{number} names {path}, which does not exist"
    if test:
        assert f"def {test}(" in found[0].read_text(), f"{number} names {name}, and there is no such test"
