"""The pages speak of commands, options, variables and files that are there."""

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gpubloom.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_SHOWN = re.compile(r"^(?:\$ |\.venv/bin/)?(bloom [^#\n`]+)|`(bloom [^`\n]+)`", re.MULTILINE)
_VARIABLE = re.compile(r"\b(?:BLOOM|METRICS)_[A-Z_]*[A-Z]\b")
_PATH = re.compile(r"`((?:src|tests|docs|ui|bench|tools|examples)/[\w./-]+)`")


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*words, name))
    else:
        yield words, command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@functools.cache
def _code() -> str:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    read = [ROOT / name for name in tracked.splitlines() if name.endswith((".py", ".toml"))]
    return "\n".join(path.read_text() for path in [*read, ROOT / "Makefile"] if path != Path(__file__))


def shown_commands() -> list[tuple[str, str]]:
    return [
        (page.name, (found[1] or found[2]).strip())
        for page in PAGES
        for found in _SHOWN.finditer(page.read_text())
    ]


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_every_command_that_a_page_shows_exists_with_its_options(page: str, line: str) -> None:
    words = line.split(" -- ")[0].split()[1:]
    meant = {name: command for name, command in COMMANDS.items() if name == tuple(words[: len(name)])}
    groups = {name[0] for name in COMMANDS if len(name) > 1}
    if not meant:
        assert words[:1] and words[0] in groups and len(words) == 1, f"{page}: there is no `{line}`"  # noqa: PT018
        return
    [(name, command)] = meant.items()
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    asked = [word for word in words[len(name) :] if re.match(r"-{1,2}[a-z]", word)]
    for option in asked:
        assert option.rstrip(".,;:)").partition("=")[0] in known, f"{page}: `{line}` has no option {option}"


def test_every_command_is_on_the_page_of_commands() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for name in COMMANDS:
        named = any(
            f"`bloom {' '.join(name)}" in row or (f"`bloom {name[0]} " in row and f"`… {name[-1]}`" in row)
            for row in rows
        )
        assert named, f"docs/commands.md does not name `bloom {' '.join(name)}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_and_paths_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    for variable in set(_VARIABLE.findall(text)):
        # Settings are read by the names of their fields.
        setting = re.search(rf"^    {variable.removeprefix('BLOOM_').lower()}: ", _code(), re.MULTILINE)
        assert setting or variable in _code(), f"{page.name}: nothing reads {variable}"
    for path in set(_PATH.findall(text)):
        assert (ROOT / path).exists(), f"{page.name}: there is no {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} → {link}"
        if heading:
            lines = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in lines}
            assert heading in anchors, f"{page.name} → {link}"
