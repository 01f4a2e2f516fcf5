"""Lists every text of GPU Bloom that a person can read, for reading from top to bottom.

    python tools/texts.py > texts.txt           web app, command line, API and messages
    python tools/texts.py --since REVISION      only texts that this revision of the repository did not have

A line is `file:line  text`; `{}` stands for a value. Texts are found by their form; no list is kept.
In Python they are string literals of at least three words, and arguments such as `help` and `description`; in
the web app they are JSX text, string literals of at least two words, and attributes such as `label`.
Docstrings count where the command line or the API shows them.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("src/gpubloom", "src/metaflow_extensions", "src/metaflow_traincard")
# Their docstrings are the help of a command, or the description of a route or schema.
SHOWN_DOCSTRINGS = ("src/gpubloom/cli/", "src/gpubloom/server/", "src/gpubloom/plan/")
# The values of these are read by people, however short they are.
SHOWN_ARGUMENTS = {"help", "description", "summary", "title", "label", "prompt", "metavar"}
# Statements and patterns are made of words, too.
CODE = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|ALTER)\b|\(\?|\\[dwsb]|^\s*(import|from|def|class)\s"
)


class Text(NamedTuple):
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--since", metavar="REVISION", help="list only texts that this revision did not have")
    arguments = parser.parse_args()
    known = {text.text for text in texts_of_revision(arguments.since)} if arguments.since else set()
    for text in texts_of(ROOT):
        if text.text not in known:
            known.add(text.text)
            print(text)


def texts_of(root: Path) -> Iterator[Text]:
    yield from web_texts(root)
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            # Templates are programs that people start from, and read as such.
            if "templates" not in file.parts and "migrations" not in file.parts:
                yield from python_texts(file.read_text(encoding="utf-8"), str(file.relative_to(root)))


def texts_of_revision(revision: str) -> list[Text]:
    """The texts that `revision` had. Its files are unpacked into a folder that is removed afterwards."""
    archive = subprocess.run(
        ["git", "archive", revision, "src", "ui/src"], cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        return list(texts_of(Path(folder)))


def python_texts(source: str, file: str) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if docstring := ast.get_docstring(node):
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            docstrings.add(statement.value)
            if is_shown(node, file):
                yield Text(file, statement.lineno, one_line(docstring))
    inside: set[ast.AST] = set()
    short = {
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in SHOWN_ARGUMENTS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # Breadth first: the parts of an f-string come later than the whole.
            inside.update(node.values)
        if node in inside or node in docstrings:
            continue
        text = literal(node)
        if text is not None and (node in short or len(words(text)) >= 3) and not CODE.search(text):
            yield Text(file, node.lineno, one_line(text))  # type: ignore[attr-defined]


def is_shown(node: ast.AST, file: str) -> bool:
    """Whether people see this docstring: of commands and routes, and of schemas, which are classes."""
    if not file.startswith(SHOWN_DOCSTRINGS):
        return False
    if isinstance(node, ast.ClassDef):
        return any("Schema" in ast.unparse(base) or "Model" in ast.unparse(base) for base in node.bases)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        in_signature = ast.unparse(node.args)
        return bool(node.decorator_list) or "typer." in in_signature
    return False


def literal(node: ast.AST) -> str | None:
    """The text of a string literal; of an f-string, with `{}` for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "{}" for part in node.values)
    return None


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]{2,}", text) if re.search(r"[a-z] [a-zA-Z{]|[}] [a-z]", text) else []


def one_line(text: str) -> str:
    return " ".join(text.split())


def web_texts(root: Path) -> list[Text]:
    """What `ui/tools/texts.mjs` finds; it reads TypeScript by TypeScript's own parser."""
    found = subprocess.run(
        ["node", str(ROOT / "ui/tools/texts.mjs"), str(root / "ui/src")],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        sys.exit(f"The texts of the web app cannot be listed (run `make ui` first):\n{found.stderr}")
    return [Text(f"ui/src/{file}", line, text) for file, line, text in json.loads(found.stdout)]


if __name__ == "__main__":
    main()
