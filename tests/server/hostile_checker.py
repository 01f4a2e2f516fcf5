"""A check of a model that a model file has taken over: `python -m` this instead of the server's own."""

import json
from pathlib import Path
from typing import Any

from gpubloom.hub import checking
from gpubloom.server.models import checks
from tests.server.hostile_parser import try_all


class Report:
    def __init__(self, folder: Path) -> None:
        self._found = try_all(folder / "config.json")

    def to_json(self) -> dict[str, Any]:
        found = json.loads(self._found).items()
        findings = [{"code": name, "severity": "note", "sentence": outcome} for name, outcome in found]
        unknown = dict.fromkeys(("family", "parameters", "context_length", "vocab_size", "memory"))
        return {"ok": False, "findings": findings, "chat_template": False, "bytes": 0, **unknown}


if __name__ == "__main__":
    checking.check_model = Report  # type: ignore[assignment]
    checks.main()
