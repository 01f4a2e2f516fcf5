"""`bloom server start`, `bloom server worker` and `bloom up`: the server, a worker, or both.

Before they start, they read the settings, create the home folder, migrate the database and check whether the
database is a copy. Wrong input ends with one sentence and exit code 2; `bloom up` finds it before it starts
two processes that would each print the same error.
"""

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.database import fail_unavailable
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse

if TYPE_CHECKING:
    from gpubloom.server.settings import Settings

_Port = Annotated[int | None, typer.Option(help="Port to listen on. [env BLOOM_PORT, PORT] [default: 8000]")]
_Host = Annotated[
    str | None, typer.Option(help="Address to listen on. [env BLOOM_HOST] [default: 127.0.0.1]")
]


def start(port: _Port = None, host: _Host = None) -> None:
    """Start the server without a worker: the web app and the HTTP API."""
    # Loaded here, so that every other command starts without a web framework.
    from gpubloom.cli.server_process import run_server

    run_server(port=port, host=host)


def worker() -> None:
    """Start a worker.

    A worker takes jobs from the queue and runs them on this machine.
    """
    from gpubloom.cli.child_process import thread_waiting
    from gpubloom.cli.parent import end_with_parent

    settings = ready_settings()
    # Training processes inherit it.
    os.environ.update(thread_waiting(os.environ))
    end_with_parent()
    asyncio.run(_work(settings))


def up(port: _Port = None, host: _Host = None) -> None:
    """Start the web app on this machine, with a worker for its jobs."""
    from gpubloom.cli.parent import run_both

    echo("Starting the web app …", err=True)
    # An error is printed once, before a process starts.
    listen(usable_settings(port=wanted_port(port), host=host)).close()
    arguments = [*(("--port", str(port)) if port is not None else ()), *(("--host", host) if host else ())]
    raise typer.Exit(run_both(arguments))


def rotate_key() -> None:
    """Replace the key that encrypts stored tokens and credentials.

    Servers and workers may run meanwhile. If this command is interrupted, run it again.
    """
    from gpubloom.cli.database import in_database
    from gpubloom.server.key_rotation import rotate_key as rotated
    from gpubloom.server.security.secrets import CannotOpen, KeyInUse

    settings = ready_settings()
    try:
        found = in_database(settings, lambda database: rotated(database, settings.home))
    except CannotOpen as problem:
        fail("invalid_key", str(problem), status=WRONG_INPUT)
    except KeyInUse as problem:
        fail(problem.code, str(problem))
    echo(f"Replaced the encryption key. Values encrypted again: {found.encrypted}.")
    if found.unreadable:
        echo(f"Values that no key opens, left as they are: {found.unreadable}.")


def usable_settings(**flags: Any) -> "Settings":
    """The settings of flags and environment, with a writable home folder that is closed to others."""
    from gpubloom.server.home import private_umask, protect_home
    from gpubloom.server.settings import SettingsError, load_settings

    try:
        settings = load_settings(**{name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        fail(error.code, f"Invalid setting. {error}", status=WRONG_INPUT)
    if settings.egress_allow:
        # From a .env file; what connects to other machines reads it from the environment.
        os.environ["BLOOM_EGRESS_ALLOW"] = settings.egress_allow
    try:
        private_umask()
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.uploads.mkdir(exist_ok=True)
        protect_home(settings.home)
    except OSError as error:
        fail(
            "cannot_write",
            f"Cannot use the folder {settings.home} ({error.strerror}). Set BLOOM_HOME to another folder.",
            status=WRONG_INPUT,
        )
    if not os.access(settings.home, os.W_OK):
        fail(
            "cannot_write",
            f"Cannot write to the folder {settings.home}. Set BLOOM_HOME to another folder.",
            status=WRONG_INPUT,
        )
    return settings


def wanted_port(port: int | None) -> int | str | None:
    """The flag; else PORT, unless BLOOM_PORT is set; None: the port of the settings."""
    if port is None and "BLOOM_PORT" not in os.environ:
        return os.environ.get("PORT") or None
    return port


def listen(settings: "Settings") -> socket.socket:
    """A socket at the address of the settings."""
    try:
        return socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=512,
        )
    except OSError as error:
        fail(
            "cannot_listen",
            f"Cannot listen on {settings.host}:{settings.port} ({_reason(error)}). The port may be "
            f"in use. Choose another port: --port {settings.port + 1} or make run PORT={settings.port + 1}.",
            status=WRONG_INPUT,
        )


def _reason(error: OSError) -> str:
    # Error numbers of the resolver are not those of the system.
    return str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)


def ready_settings(**flags: Any) -> "Settings":
    """Valid settings, with a home folder and a migrated database."""
    from sqlalchemy.exc import SQLAlchemyError

    from gpubloom.server.db.migrate import DatabaseNewer, current_revision, upgrade
    from gpubloom.server.logs import configure_logs
    from gpubloom.server.rentals.installation import InstallationMoved

    settings = usable_settings(**flags)
    configure_logs(settings.log_format)
    try:
        before = current_revision(settings.database)
        upgrade(settings.database)
        asyncio.run(_settle(settings, before))
    except (DatabaseNewer, InstallationMoved) as found:
        refuse(found)
    except (SQLAlchemyError, OSError) as error:
        fail_unavailable(error)
    return settings


async def _settle(settings: "Settings", before: str | None) -> None:
    from gpubloom.server.audit.maintenance import sign_migrated
    from gpubloom.server.db.database import Database
    from gpubloom.server.rentals.installation import settle

    database = Database(settings.database, settings.home)
    try:
        await sign_migrated(database, settings.home, before)
        await settle(database)
    finally:
        await database.close()


async def _work(settings: "Settings") -> None:
    """Work until SIGTERM or Ctrl-C; running jobs continue."""
    from gpubloom.providers.local.provider import LocalProvider
    from gpubloom.server.db.database import Database
    from gpubloom.worker.loop import WorkerLoop

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    database = Database(settings.database, settings.home)
    try:
        await WorkerLoop(settings, database, LocalProvider(settings.home)).run(stopping)
    finally:
        await database.close()
