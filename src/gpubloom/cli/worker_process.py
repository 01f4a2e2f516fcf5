"""Runs the worker in this process until it is told to stop."""

import asyncio
import os
import signal

from gpubloom.cli.parent_pipe import end_with_parent
from gpubloom.cli.start_up import ready_settings
from gpubloom.cli.thread_waiting import thread_waiting
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.server.db.database import Database
from gpubloom.server.settings import Settings
from gpubloom.worker.loop import WorkerLoop


def run_worker() -> None:
    """Work until SIGTERM or Ctrl-C; runs go on."""
    settings = ready_settings()
    # Trainings inherit it.
    os.environ.update(thread_waiting(os.environ))
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
