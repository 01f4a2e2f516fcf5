"""Settings and a port that can be used, or one sentence and exit code 2.

Light to import: `bloom up` asks here before it starts two processes that would each say the same.
"""

import os
import socket
from typing import Any, NoReturn

import typer

from gpubloom.server.settings import Settings, SettingsError, load_settings


def usable_settings(**flags: Any) -> Settings:
    """What flags and environment say, with a home folder that can be written to."""
    try:
        settings = load_settings(**{name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        stop(f"A setting cannot be used. {error}")
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.uploads.mkdir(exist_ok=True)
    except OSError as error:
        stop(f"The folder {settings.home} cannot be used ({error.strerror}). BLOOM_HOME names another one.")
    if not os.access(settings.home, os.W_OK):
        stop(f"The folder {settings.home} cannot be written to. BLOOM_HOME names another one.")
    return settings


def wanted_port(port: int | None) -> int | str | None:
    """The flag's; else PORT's, unless BLOOM_PORT is set; None: as the settings say."""
    if port is None and "BLOOM_PORT" not in os.environ:
        return os.environ.get("PORT") or None
    return port


def listen(settings: Settings) -> socket.socket:
    """A socket at the address of the settings."""
    try:
        return socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=512,
        )
    except OSError as error:
        stop(
            f"Cannot listen on {settings.host}:{settings.port} ({_reason(error)}). Is another server running "
            f"there? Choose another port: --port {settings.port + 1}, or make run PORT={settings.port + 1}."
        )


def _reason(error: OSError) -> str:
    # Numbers of the resolver are none of the system's.
    return str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)


def stop(sentence: str, *, code: int = 2) -> NoReturn:
    """End with a sentence on standard error."""
    typer.echo(sentence, err=True)
    raise typer.Exit(code)
