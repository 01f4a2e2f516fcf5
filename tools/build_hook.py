"""Puts the built web app and the card's page into the wheel; builds them first when they are missing."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MADE = ("server/web/static/index.html", "traincard/card/static/card.js")


class WebAppBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls this before it packs a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install serves the checkout's own build, which `make run` keeps fresh.
        if version == "editable":
            return
        root = Path(self.root)
        # Metaflow asks this file which installed packages extend it; without it, the extension is found only
        # while no other one is installed.
        build_data["force_include"][str(root / "tools/top_level.txt")] = (
            f"{self.build_config.builder.artifact_project_id}.dist-info/top_level.txt"
        )
        if all((root / "src/gpubloom" / made).is_file() for made in _MADE):
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "The web app is not built and npm was not found. "
                "Install Node.js 20 or newer, or run `make ui` on a machine that has it, then build again."
            )
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=root / "ui", check=True)
        subprocess.run([npm, "run", "build"], cwd=root / "ui", check=True)
