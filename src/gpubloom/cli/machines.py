"""`bloom server machines`: the machines with workers, and how to release the jobs of a lost machine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpubloom.cli.database import settings_or_fail
from gpubloom.cli.output import WRONG_INPUT, echo, fail

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncSession

    from gpubloom.server.settings import Settings

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, help="List the machines that run workers; remove a lost machine.")


@app.command("list")
def list_machines() -> None:
    """List the machines with their last contact and number of jobs."""
    from gpubloom.server.db.clock import read_database_time
    from gpubloom.server.jobs.machines import list_machines as listed

    async def work(session: "AsyncSession", settings: "Settings") -> list[str]:
        moment = await read_database_time(session)
        lines = []
        for machine, jobs in await listed(session):
            silent = moment - machine.last_seen_at
            state = (
                "gone" if machine.gone_at else "offline" if silent > settings.machine_timeout else "online"
            )
            lines.append(_lines(machine.name, state, machine.last_seen_at, jobs))
        return lines

    lines = _in_database(work)
    echo("\n".join(lines) or "No machine has run a worker yet. Start a worker: bloom server worker")


@app.command()
def forget(
    name: Annotated[str, typer.Argument(help="Machine name from `bloom server machines list`.")],
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Do not ask for confirmation, even if the machine was seen in the last minute."
        ),
    ] = False,
) -> None:
    """Mark a machine as gone and release its jobs.

    A job continues on another machine if its checkpoints can be read from there; otherwise it fails.
    """
    from gpubloom.server.db.clock import read_database_time
    from gpubloom.server.jobs.launch import WORKER_SEEN_WITHIN
    from gpubloom.server.jobs.recovery import forget_machine
    from gpubloom.server.jobs.tables import Machine

    async def seen_recently(session: "AsyncSession", settings: "Settings") -> bool | None:
        machine = await session.get(Machine, name)
        if machine is None:
            return None
        return await read_database_time(session) - machine.last_seen_at < WORKER_SEEN_WITHIN

    recently = _in_database(seen_recently)
    if recently is None:
        fail(
            "machine_not_found",
            f"There is no machine {name!r}. For the names, run: bloom server machines list",
            status=WRONG_INPUT,
        )
    if recently and not yes:
        typer.confirm(
            "This machine was seen in the last minute. If it is marked as gone, its worker stops its running "
            "jobs. Continue?",
            abort=True,
        )
    released = _in_database(lambda session, settings: forget_machine(session, name))
    if released is None:
        echo(f"Machine {name} is already marked as gone.")
        return
    echo(f"Machine {name} is marked as gone. Jobs released: {released}.")


def _lines(name: str, state: str, seen: "datetime", jobs: int) -> str:
    # A name is a host name and a UUID: nothing else fits beside it but the state.
    return (
        f"{name}  {state}\n  last seen {seen:%Y-%m-%d %H:%M:%S} UTC · {jobs} {'job' if jobs == 1 else 'jobs'}"
    )


def _in_database(work: "Callable[[AsyncSession, Settings], Awaitable[Result]]") -> Result:
    from gpubloom.server.db import migrate
    from gpubloom.server.db.database import Database

    settings = settings_or_fail()
    migrate.upgrade(settings.database)

    async def done() -> Result:
        database = Database(settings.database, settings.home)
        try:
            async with database.write() as session:
                return await work(session, settings)
        finally:
            await database.close()

    return asyncio.run(done())
