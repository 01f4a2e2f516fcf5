"""Puts the built web app into the wheel: builds it when it is missing, says what to do when it cannot."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WebAppBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls this before it packs a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install serves the checkout's own build, which `make run` keeps fresh.
        if version == "editable":
            return
        root = Path(self.root)
        if (root / "src/gpubloom/server/web/static/index.html").is_file():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "The web app is not built and npm was not found. "
                "Install Node.js 20 or newer, or run `make ui` on a machine that has it, then build again."
            )
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=root / "ui", check=True)
        subprocess.run([npm, "run", "build"], cwd=root / "ui", check=True)
