"""Writes the card's HTML file.

The page holds its script, its style and its data, and asks nobody for anything: its own content policy
forbids every request, and every script but the one whose hash it names. Data lies in a JSON block in which no
character can end the block. The live page is the same without data: it may ask the server that it came from.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpubloom.errors import CodedError
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.card.content import card_content, run_content

STATIC = Path(__file__).parent / "static"

# Metaflow puts its own token here when it stores the page; elsewhere nobody reads it.
RELOAD_TOKEN = "[METAFLOW_RELOAD_TOKEN]"  # noqa: S105 - a placeholder, no secret

_PAGE = """<!doctype html>
<html lang="en" data-reload-token="{token}"{live}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; \
style-src 'unsafe-inline'; img-src data:;{connect} base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>{title} · TrainCard</title>
<style>{style}</style>
</head>
<body>
<div id="card"></div>
<noscript>This card needs JavaScript. Turn on JavaScript to see the card.</noscript>
<script type="application/json" id="card-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


class CardNotBuiltError(CodedError, RuntimeError):
    """The page's script was not built."""

    code = "card_not_built"


def render_card(snapshot: Mapping[str, Any], *, notes: tuple[str, ...] = ()) -> str:
    """The card of a snapshot as one HTML page. `notes`: sentences for the reader, shown under the status."""
    return render_content(card_content(snapshot, notes=notes))


def render_content(content: Mapping[str, Any], token: str = RELOAD_TOKEN) -> str:
    """The page around content that is ready."""
    return _page(_inert_json(content), str(content.get("name", "")), token=token)


def live_page(host: str) -> str:
    """The page of a server at `host`, which tells it about the run."""
    # Named beside 'self', which not every browser takes to mean a WebSocket too.
    quoted = html.escape(host)
    connect = f" connect-src 'self' ws://{quoted} wss://{quoted};"
    return _page("null", "Run", live=" data-live", connect=connect)


def _page(data: str, title: str, *, token: str = RELOAD_TOKEN, live: str = "", connect: str = "") -> str:
    script, style, script_hash = _parts()
    return _PAGE.format(
        token=html.escape(token),
        live=live,
        connect=connect,
        script_hash=script_hash,
        title=html.escape(title.encode("utf-8", "replace").decode()),
        style=style,
        data=data,
        script=script,
    )


def write_card(run_dir: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Writes the card of a run as it is now; the file is replaced whole, so an open browser can reload it."""
    target = Path(out)
    text = render_content(run_content(Path(run_dir), page_folder=target.parent))
    if target.exists() and not target.is_file():
        # A pipe or device, such as /dev/stdout: a file in its place would not be what reads from it.
        target.write_text(text, encoding="utf-8")
    else:
        # A link stays a link.
        replace_file(target.resolve(), text)
    return target


def _inert_json(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    # Inside a script element only "<" can begin its end; escaped, it is still the same JSON.
    return text.replace("<", "\\u003c")


@cache
def _parts() -> tuple[str, str, str]:
    try:
        script = (STATIC / "card.js").read_text(encoding="utf-8").strip()
        style = (STATIC / "card.css").read_text(encoding="utf-8").strip()
    except FileNotFoundError as problem:
        raise CardNotBuiltError(
            f"The card's page is not built: {problem.filename} is missing. Run `make ui` in the checkout."
        ) from None
    # A literal end tag in the script would end the element; as a string it means the same with a backslash.
    script = script.replace("</script", "<\\/script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, style, f"sha256-{digest}"
