"""A script with the files beside it and its command line, ready to be asked."""

import ast
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any

from gpubloom.scripts.facts import Call, Facts, read_facts
from gpubloom.scripts.notebooks import MAGIC, from_notebook, is_notebook
from gpubloom.scripts.requirements import Detected, Evidence, ScriptProblem
from gpubloom.scripts.source import SourceFile, parse
from gpubloom.scripts.values import Known, Values

_MOST_FILES = 50
_LONGEST_ARGUMENT = 1_000


@dataclass(frozen=True)
class Command:
    """A command line that the script brings along, such as `!torchrun …` of a notebook."""

    words: tuple[str, ...]
    evidence: Evidence


class Script:
    """`files[0]` is the script itself."""

    def __init__(
        self, text: str, files: Mapping[str, str], arguments: Sequence[str], title: str = "The script"
    ) -> None:
        self.notes: list[str] = []
        self.from_notebook = is_notebook(text)
        if self.from_notebook:
            text = from_notebook(text)
        self.main = read_facts(parse(text, title=title))
        self.files: list[Facts] = [self.main]
        self.other_files: dict[str, str] = {}
        for name, content in list(files.items())[:_MOST_FILES]:
            self._add_file(name, content)
        if len(files) > _MOST_FILES:
            self.notes.append(f"{_MOST_FILES} of the {len(files)} additional files were read.")
        self._calls = [_by_tail(facts) for facts in self.files]
        self.modules = {PurePosixPath(facts.source.name or "").stem for facts in self.files[1:]}
        self.commands = tuple(self._commands(self.main.source))
        config, rest = self._config_file(arguments)
        overrides = self._from_json() | self._from_config(config) | self._from_launches()
        overrides |= _from_arguments(rest)
        self.config_file = config.source.name if config else None
        kept = [facts for facts in self.files if facts is not config and facts not in self._configs]
        self.values = Values(kept, overrides)

    def calls(self, *tails: str) -> Iterator[Call]:
        """Calls by the last part of their name, those of the script itself first."""
        for by_tail in self._calls:
            found = [numbered for tail in set(tails) for numbered in by_tail.get(tail, ())]
            yield from (call for _, call in sorted(found, key=itemgetter(0)))

    def calls_of(self, *starts: str) -> Iterator[Call]:
        """Calls by the beginning of their full name."""
        for facts in self.files:
            for call in facts.calls:
                if call.name.startswith(starts):
                    yield call

    def keyword(self, call: Call, *names: str, position: int | None = None) -> Known | None:
        """The value of an argument of a call, by name or by its place."""
        for keyword in call.node.keywords:
            if keyword.arg in names:
                found = self.values.of(keyword.value, call.source)
                return None if found is None else _at(call.source.evidence(keyword.value.lineno), found)
        if position is None or position >= len(call.node.args):
            return None
        before = call.node.args[: position + 1]
        if any(isinstance(argument, ast.Starred) for argument in before):
            return None
        return self.values.of(before[-1], call.source)

    def has_keyword(self, call: Call, name: str) -> bool:
        return any(keyword.arg == name for keyword in call.node.keywords)

    def evidence(self, call: Call) -> tuple[Evidence, ...]:
        return (call.source.evidence(call.line),)

    def imported(self, *packages: str) -> tuple[Evidence, ...]:
        """Where the first of these packages is imported; empty when none is."""
        for facts in self.files:
            for package in packages:
                if package in facts.packages:
                    return (facts.source.evidence(facts.packages[package]),)
        return ()

    def _add_file(self, name: str, content: str) -> None:
        if not name.endswith((".py", ".ipynb")):
            self.other_files[name] = content
            return
        try:
            text = from_notebook(content) if name.endswith(".ipynb") else content
            self.files.append(read_facts(parse(text, name)))
        except ScriptProblem as problem:
            self.notes.append(f"{problem} The file was ignored.")

    def _commands(self, source: SourceFile) -> Iterator[Command]:
        for line, comment in source.comments:
            _, marked, text = comment.partition(MAGIC)
            if marked and text.lstrip().startswith(("!", "%pip", "%conda")):
                try:
                    words = shlex.split(text.lstrip().lstrip("!%"))
                except ValueError:
                    continue
                if words:
                    yield Command(tuple(words), source.evidence(line))

    def _config_file(self, arguments: Sequence[str]) -> tuple[Facts | None, Sequence[str]]:
        """nanoGPT's way: a file of assignments that the script executes before it begins."""
        imported = {name for facts in self.files for name in (*facts.packages, *facts.local_imports)}
        self._configs = [
            facts
            for facts in self.files[1:]
            if _is_config(facts.source.tree) and PurePosixPath(facts.source.name or "").stem not in imported
        ]
        named = [word for word in arguments if not word.startswith("-")]
        for facts in self._configs:
            name = facts.source.name or ""
            if any(name == word or name.endswith(f"/{word}") or word.endswith(f"/{name}") for word in named):
                return facts, [word for word in arguments if word not in named]
        runs_a_config = any(call.name == "exec" for call in self.main.calls)
        if runs_a_config and len(self._configs) == 1:
            return self._configs[0], arguments
        if runs_a_config and len(self._configs) > 1:
            names = ", ".join(facts.source.name or "" for facts in self._configs)
            self.notes.append(
                f"The values come from the script; these config files can change them: {names}."
            )
        return None, arguments

    def _from_config(self, config: Facts | None) -> dict[str, Known]:
        if config is None:
            return {}
        values = Values([config], {})
        return {name: known for name in values.names() if (known := values.setting(name)) is not None}

    def _from_launches(self) -> dict[str, Known]:
        """What a notebook says on the command line of a script that it starts."""
        found: dict[str, Known] = {}
        for command in self.commands:
            scripts = [number for number, word in enumerate(command.words) if word.endswith(".py")]
            if scripts:
                said = _from_arguments(command.words[scripts[0] + 1 :])
                found |= {name: Known(known.value, (command.evidence,)) for name, known in said.items()}
        return found

    def _from_json(self) -> dict[str, Known]:
        """Settings of JSON files, such as DeepSpeed's."""
        found: dict[str, Known] = {}
        for name, content in self.other_files.items():
            if not name.endswith(".json") or len(content) > 100_000:
                continue
            try:
                values = json.loads(content)
            except (ValueError, RecursionError):
                self.notes.append(f"{name} is not valid JSON and was ignored.")
                continue
            if isinstance(values, dict):
                for key, value in values.items():
                    known = _json_setting(key, value, name, content)
                    if known is not None:
                        found[str(key)] = known
        return found


def detected(known: Known) -> Detected[Any]:
    """A value of the script as an answer: stated, unless a condition had to be guessed on the way."""
    return Detected[Any](
        value=known.value, confidence="stated" if known.sure else "derived", evidence=known.evidence
    )


def _at(evidence: Evidence, known: Known) -> Known:
    """The line of the call first, then where its values come from."""
    rest = tuple(line for line in known.evidence if line != evidence)
    return Known(known.value, (evidence, *rest)[:4], known.sure)


def _json_setting(key: str, value: Any, name: str, content: str) -> Known | None:
    if isinstance(value, dict):
        # {"bf16": {"enabled": true}}
        value = value.get("enabled", value.get("stage"))
    if not isinstance(value, int | float | str | bool) or value == "auto":
        return None
    lines = content.split("\n")
    line = next((number for number, text in enumerate(lines, 1) if f'"{key}"' in text), 1)
    return Known(value, (Evidence(line=line, text=lines[line - 1].strip()[:160], file=name),))


def _by_tail(facts: Facts) -> dict[str, list[tuple[int, Call]]]:
    found: dict[str, list[tuple[int, Call]]] = {}
    for number, call in enumerate(facts.calls):
        found.setdefault(call.tail, []).append((number, call))
    return found


def _is_config(tree: ast.Module) -> bool:
    """Assignments and nothing else."""
    statements = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    texts = [
        node for node in statements if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assigned = [node for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)]
    return bool(assigned) and len(assigned) + len(texts) == len(statements)


def _from_arguments(arguments: Sequence[str]) -> dict[str, Known]:
    """`--batch_size=32`, `--batch-size 32` and `--flag`."""
    found: dict[str, Known] = {}
    words = list(arguments)
    for position, word in enumerate(words):
        if not word.startswith("--") or len(word) > _LONGEST_ARGUMENT:
            continue
        name, given, text = word[2:].partition("=")
        following = words[position + 1] if position + 1 < len(words) else "--"
        if not given:
            text = "True" if following.startswith("--") else following
        evidence = Evidence(
            line=0, text=word if given or text == "True" else f"{word} {text}", file="command line"
        )
        found[name.replace("-", "_")] = Known(_literal(text), (evidence,))
    return found


def _literal(text: str) -> Any:
    if len(text) > _LONGEST_ARGUMENT:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
