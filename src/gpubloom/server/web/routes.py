"""The web app's files. Anything that is no file and no API address is a page of the app."""

import re
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"

# Built files carry a hash in their names; they never change under one name.
_FOREVER = "public, max-age=31536000, immutable"

_SCRIPT = re.compile(r'<script type="module"[^>]* src="/assets/([^"/]+)"')

_NOT_BUILT = """<!doctype html><html lang="en"><title>GPU Bloom</title>
<p>The web app is not built. Run <code>make ui</code> in the source folder, then reload this page.
The API is available at <code>/api</code>.</p></html>"""


def app_build() -> str | None:
    """Which build of the web app is served: the hashed name of its first script; None while there is none."""
    try:
        found = _SCRIPT.search((STATIC / "index.html").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if found is None else found[1]


class _Assets(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.setdefault("Cache-Control", _FOREVER)
        return response


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that is too long for any file.
        return False


def install_web_app(app: FastAPI) -> None:
    """Serve the built app; must come after every other route."""
    if (STATIC / "assets").is_dir():
        app.mount("/assets", _Assets(directory=STATIC / "assets"), name="assets")
    pages = APIRouter(include_in_schema=False)

    @pages.get("/{path:path}")
    async def page(request: Request, path: str) -> Response:
        if path == "api" or path.startswith(("api/", "assets/")):
            raise HTTPException(404)
        index = STATIC / "index.html"
        # Only names at the top of the built folder; the folder holds nothing secret.
        if path and "/" not in path and path != "index.html" and _is_file(STATIC / path):
            return FileResponse(STATIC / path, headers={"Cache-Control": "public, max-age=3600"})
        if not index.is_file():
            return HTMLResponse(_NOT_BUILT, status_code=503)
        return FileResponse(index, media_type="text/html", headers={"Cache-Control": "no-cache"})

    app.include_router(pages)
