"""The pages are true: what they name exists, and commands print what a page shows.

A page shows output in a `console` block, where a line that begins with `$ ` is a command:

    ```console
    $ bloom plan --shape 7b --machine "RTX 4090, 128 GB host"
    7b on RTX 4090, 128 GB host
    …
    ```

`…` stands for any text of a line, and alone in a line for any lines; spaces and empty lines are not compared.
The commands of a page run one after the other in one folder that looks like a checkout. A comment
`<!-- long -->` in front of a block leaves it to `make test-long`. Blocks without any output are not run. A
command that fails on purpose has the comment `# exit code N` behind it.
"""

import ast
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
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
_CONSOLE = re.compile(r"^(<!-- long -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```(python|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*words, name))
    else:
        yield words, command


COMMANDS = dict(_commands(typer.main.get_command(app)))
GROUPS = {name[:length] for name in COMMANDS for length in range(1, len(name))}


@functools.cache
def _code() -> str:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    read = [ROOT / name for name in tracked.splitlines() if name.endswith((".py", ".toml"))]
    return "\n".join(path.read_text() for path in [*read, ROOT / "Makefile"] if path != Path(__file__))


@functools.cache
def _fields() -> frozenset[str]:
    """Names of fields of classes, settings among them."""
    return frozenset(re.findall(r"^    (\w+): ", _code(), re.MULTILINE))


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
    if not meant:
        assert tuple(words) in GROUPS, f"{page}: there is no `{line}`"
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


@dataclass(frozen=True)
class Block:
    """A console block: each command with the lines that the page shows below it."""

    is_long: bool
    steps: tuple[tuple[str, str], ...]

    @property
    def shows_output(self) -> bool:
        return any(output.strip() for _, output in self.steps)


def blocks_of(page: Path) -> list[Block]:
    found = []
    for mark, text in _CONSOLE.findall(page.read_text()):
        before, *parts = re.split(r"^\$ (.+)\n", text, flags=re.MULTILINE)
        assert not before.strip(), f"{page.name}: {before.strip()!r} follows no command"
        block = Block(bool(mark), tuple(zip(parts[::2], parts[1::2], strict=True)))
        if block.shows_output:
            found.append(block)
    return found


def same_output(shown: str, printed: str) -> bool:
    """Whether a command printed what a page shows, where `…` stands for anything."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in _lines(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("loss 1.5\n", "loss  1.5\n\n", True),
        ("loss …\ndone\n", "loss 1.5\ndone\n", True),
        ("first\n…\nlast\n", "first\na\nb\nlast\n", True),
        ("first\n…\nlast\n", "first\nlast\n", True),
        ("loss 1.5\n", "loss 1.6\n", False),
        ("loss …\n", "loss 1.5\nmore\n", False),
        ("first\n…\n", "second\nfirst\n", False),
        ("1.5\n", "125\n", False),
    ],
)
def test_output_is_compared_but_for_the_marked_parts(shown: str, printed: str, same: bool) -> None:
    assert same_output(shown, printed) is same


def _pages_with_output() -> Iterator[Any]:
    for page in PAGES:
        blocks = blocks_of(page)
        if any(not block.is_long for block in blocks):
            yield pytest.param(page, False, id=page.name)
        if any(block.is_long for block in blocks):
            yield pytest.param(page, True, id=f"{page.name}-long", marks=pytest.mark.long)


@pytest.mark.parametrize(("page", "with_long"), list(_pages_with_output()))
def test_commands_print_what_a_page_shows(page: Path, with_long: bool, tmp_path: Path) -> None:
    for name in ("README.md", "docs", "examples", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    for block in blocks_of(page):
        if block.is_long and not with_long:
            continue
        for command, shown in block.steps:
            program, *words = shlex.split(command.partition(" # ")[0])
            assert program == "bloom", f"{page.name}: `{command}` is not a command of bloom"
            done = subprocess.run(
                [sys.executable, "-m", "gpubloom.cli", *words],
                cwd=tmp_path,
                env=_environment(tmp_path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
            )
            failing = re.search(r" # exit code (\d+)$", command)
            expected = int(failing[1]) if failing else 0
            assert done.returncode == expected, f"{page.name}: `{command}` prints\n{done.stdout}"
            assert same_output(shown, done.stdout), (
                f"{page.name}: `{command}` prints\n{done.stdout}\nand the page shows\n{shown}"
            )


def _environment(folder: Path) -> dict[str, str]:
    """A terminal of 80 columns, no settings of the person who runs the tests, and no network."""
    kept = ("PATH", "PYTHONPATH", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONUTF8": "1",
        "HOME": str(folder / "home"),
        "BLOOM_HOME": str(folder / "home" / ".gpubloom"),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_on_a_page_can_be_parsed(page: Path) -> None:
    for language, text in _CODE.findall(page.read_text()):
        if language == "json":
            json.loads(text)
        else:
            ast.parse(text.replace("…", "..."), filename=page.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_has_its_heading(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        # After an empty line, the rest of a table is shown as a paragraph of text.
        assert re.match(r"\|.*\n\|[-:|]+\|\n", table), f"{page.name}: {table.splitlines()[0]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_and_paths_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    for variable in set(_VARIABLE.findall(text)):
        # Settings are read by the names of their fields.
        setting = variable.removeprefix("BLOOM_").lower() in _fields()
        assert setting or variable in _code(), f"{page.name}: nothing reads {variable}"
    for path in set(_PATH.findall(text)):
        # NAME is to be replaced: there are files of this form.
        assert any(ROOT.glob(path.replace("NAME", "*"))), f"{page.name}: there is no {path}"


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


def test_the_picture_of_the_packages_has_the_layers_of_the_contracts() -> None:
    picture = (ROOT / "docs" / "images" / "packages.svg").read_text()
    heights = {name: int(y) for name, y in re.findall(r'<g id="(\w+)"><rect [^>]*\by="(\d+)"', picture)}
    packages = {path.parent.name for path in (ROOT / "src" / "gpubloom").glob("*/__init__.py")}
    assert set(heights) == packages
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = [each["layers"] for each in contracts if each.get("containers") == ["gpubloom"]]
    assert len(checked) == 2
    for layers in checked:
        rows = [{heights[name] for name in layer.split(" | ")} for layer in layers]
        assert all(len(row) == 1 for row in rows), "packages of one layer stand at one height"
        tops = [row.pop() for row in rows]
        assert tops == sorted(set(tops)), "a package stands above those that it may import"
