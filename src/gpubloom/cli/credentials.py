"""Which server the command line speaks to, and with which API token.

BLOOM_SERVER and BLOOM_TOKEN win over what `bloom login` stored. The file is readable by its owner only.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SERVER = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Credentials:
    """A server and the token for it."""

    server: str
    token: str | None


def credentials_file() -> Path:
    """Where `bloom login` stores what it was given."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "gpubloom" / "credentials.json"


def load_credentials() -> Credentials:
    """The environment's, or the stored ones. A stored token is only ever sent to the server it is for."""
    stored = _read()
    server = os.environ.get("BLOOM_SERVER", stored.get("server", DEFAULT_SERVER)).rstrip("/")
    token = os.environ.get("BLOOM_TOKEN")
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
    """Keep a token for later commands."""
    path = credentials_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps({"server": server.rstrip("/"), "token": token}))
    temporary.replace(path)
    return path


def forget_credentials() -> bool:
    """Remove the stored token; says whether there was one."""
    try:
        credentials_file().unlink()
    except FileNotFoundError:
        return False
    return True
