"""Runs the worker in this process until it is told to stop."""

import asyncio
import signal

import typer

from gpubloom.cli.parent_pipe import end_with_parent
from gpubloom.providers.local import LocalProvider
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.logs import configure_logs
from gpubloom.server.settings import Settings, SettingsError, load_settings
from gpubloom.worker.loop import WorkerLoop


def run_worker() -> None:
    """Work until SIGTERM or Ctrl-C; runs go on."""
    try:
        settings = load_settings()
    except SettingsError as error:
        typer.echo(f"A setting cannot be used. {error}", err=True)
        raise typer.Exit(2) from error
    configure_logs(settings.log_format)
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    upgrade(settings.database)
    end_with_parent()
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    database = Database(settings.database)
    try:
        await WorkerLoop(settings, database, LocalProvider(settings.home)).run(stopping)
    finally:
        await database.close()
