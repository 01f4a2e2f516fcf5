"""Whether a script reports by itself: then nobody else may speak for it."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from gpubloom.agent.spec import JobSpec
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunLock

_LARGEST_SCRIPT = 1 << 20
_MOST_MODULES = 20
# With these, TrainCard is in the script; its Reporter may begin late.
_OURS = {"gpubloom", "metaflow_traincard"}


def knows_traincard(spec: JobSpec) -> bool:
    """Whether the script, or a module beside it that it imports, imports TrainCard."""
    named = [word for word in spec.command if word.endswith(".py")]
    if not named:
        return any(word.partition(".")[0] in _OURS for word in spec.command)
    script = spec.working_folder / named[0]
    imported = set(_imports(script))
    siblings = [script.with_name(f"{name}.py") for name in sorted(imported)]
    for module in [path for path in siblings if path.is_file()][:_MOST_MODULES]:
        imported.update(_imports(module))
    return bool(imported & _OURS)


def is_reporting(spec: JobSpec) -> bool:
    """Whether a Reporter of this attempt is there, or was."""
    if RunLock.holder(spec.run_dir) is not None:
        return True
    files = RunFiles(spec.run_dir)
    if any(stream.attempt == spec.attempt and stream.rank == 0 for stream in files.sealed()):
        return True
    try:
        with files.tail(0).open("rb") as tail:
            start = json.loads(tail.readline(65_536))
    except (OSError, ValueError):
        return False
    return isinstance(start, dict) and start.get("attempt") == spec.attempt


def _imports(path: Path) -> Iterator[str]:
    """Top-level names; nothing for what is no Python, which then cannot report either."""
    try:
        if path.stat().st_size > _LARGEST_SCRIPT:
            return
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
