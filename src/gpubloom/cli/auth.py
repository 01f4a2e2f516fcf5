"""`bloom auth login` and `bloom auth logout`, and the credentials that they store and remove.

BLOOM_SERVER and BLOOM_TOKEN override the stored credentials. Only the owner can read the file.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpubloom.cli.output import WRONG_INPUT, echo, fail

DEFAULT_SERVER = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Credentials:
    """A server and the token for it."""

    server: str
    token: str | None


def credentials_file() -> Path:
    """The file in which `bloom auth login` stores the server and the token."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "gpubloom" / "credentials.json"


def load_credentials() -> Credentials:
    """From the environment, or the stored ones. A stored token is only sent to the server it belongs to."""
    stored = _read()
    # An empty variable counts as not set: in automation, a secret that does not exist is empty.
    server = (os.environ.get("BLOOM_SERVER") or stored.get("server", DEFAULT_SERVER)).rstrip("/")
    token = os.environ.get("BLOOM_TOKEN", "").strip() or None
    if token is None and stored.get("server") == server:
        token = stored.get("token")
    return Credentials(server=server, token=token)


def _read() -> dict[str, str]:
    try:
        content = json.loads(credentials_file().read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str)}


def store_credentials(server: str, token: str) -> Path:
    """Store a token for later commands."""
    from gpubloom.traincard.atomic_write import replace_file

    path = credentials_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, json.dumps({"server": server.rstrip("/"), "token": token}), mode=0o600)
    return path


def forget_credentials() -> bool:
    """Remove the stored token; returns whether one was stored."""
    try:
        credentials_file().unlink()
    except FileNotFoundError:
        return False
    return True


def login(
    server: Annotated[
        str, typer.Option(envvar="BLOOM_SERVER", help="Address of the server, as `bloom up` prints it.")
    ] = DEFAULT_SERVER,
    # No option for the token itself: it would end up in the shell's history and in process lists.
    token: Annotated[str | None, typer.Option(envvar="BLOOM_TOKEN", hidden=True)] = None,
) -> None:
    """Sign in: store an API token for later commands.

    Create the token in the web app under Settings.
    """
    from gpubloom.cli.api_client import call

    server = server.rstrip("/") if "://" in server else f"http://{server.rstrip('/')}"
    token = (token or _asked_for()).strip()
    if not token.startswith("bloom_"):
        fail(
            "invalid_api_token",
            "Invalid API token: an API token starts with bloom_. Create one in the web app under Settings.",
            status=WRONG_INPUT,
        )
    me = call("GET", "/me", credentials=Credentials(server=server, token=token))
    path = store_credentials(server, token)
    echo(f"Signed in to {server} as {me['name']} <{me['email']}>. The token is stored in {path}.")


def _asked_for() -> str:
    """Typed without echo, or the first line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt("API token", hide_input=True))
    return sys.stdin.readline()


def logout() -> None:
    """Sign out: remove the stored API token.

    The token stays valid until you revoke it in the web app.
    """
    echo("Removed the stored API token." if forget_credentials() else "No API token was stored.")
