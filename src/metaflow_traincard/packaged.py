"""The files that a step on Batch or Kubernetes needs and does not have; the code package brings them.

Metaflow packs the extension by itself, but neither `gpubloom.traincard` nor this package.
"""

from collections.abc import Iterator
from pathlib import Path

_SUFFIXES = {".py", ".js", ".css"}


def packaged_files() -> Iterator[tuple[str, str]]:
    """Pairs of a file and its name in the code package."""
    import gpubloom.traincard
    import metaflow_traincard

    # Of gpubloom only what reports and draws: a training step has no use for a server.
    root = Path(gpubloom.__file__).parent
    for name in ("__init__.py", "errors.py"):
        yield str(root / name), f"gpubloom/{name}"
    for folder, name in (
        (Path(gpubloom.traincard.__file__).parent, "gpubloom/traincard"),
        (Path(metaflow_traincard.__file__).parent, "metaflow_traincard"),
    ):
        for path in sorted(folder.rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                yield str(path), f"{name}/{path.relative_to(folder).as_posix()}"
