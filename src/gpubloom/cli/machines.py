"""`bloom machines`: the machines with workers, and what becomes of the jobs of one that is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpubloom.cli.output import WRONG_INPUT, fail

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from gpubloom.server.settings import Settings

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, help="The machines that run jobs of this server, for its operator.")


@app.command("list")
def list_machines() -> None:
    """List the machines, when they were last heard of, and how many jobs lie on them."""
    from gpubloom.server.db.clock import read_database_time
    from gpubloom.server.jobs.machines import list_machines as listed

    async def work(session: "AsyncSession", settings: "Settings") -> list[str]:
        moment = await read_database_time(session)
        lines = []
        for machine, jobs in await listed(session):
            silent = moment - machine.last_seen_at
            state = "gone" if machine.gone_at else "silent" if silent > settings.machine_timeout else "here"
            seen = f"{machine.last_seen_at:%Y-%m-%d %H:%M:%S} UTC"
            lines.append(f"{machine.name}  {state:<6}  last heard of {seen}  jobs {jobs}")
        return lines

    lines = _in_database(work)
    typer.echo("\n".join(lines) or "No machine has run a worker yet. Start one: bloom worker")


@app.command()
def forget(
    name: Annotated[str, typer.Argument(help="The machine, as `bloom machines list` prints it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, even if it was heard of lately.")] = False,
) -> None:
    """Say that a machine is gone: its jobs go on where their checkpoints can be read, or fail."""
    from gpubloom.server.db.clock import read_database_time
    from gpubloom.server.jobs.launch import WORKER_SEEN_WITHIN
    from gpubloom.server.jobs.recovery import forget_machine
    from gpubloom.server.jobs.tables import Machine

    async def heard_lately(session: "AsyncSession", settings: "Settings") -> bool | None:
        machine = await session.get(Machine, name)
        if machine is None:
            return None
        return await read_database_time(session) - machine.last_seen_at < WORKER_SEEN_WITHIN

    lately = _in_database(heard_lately)
    if lately is None:
        fail(
            "machine_not_found",
            f"There is no machine {name!r}. `bloom machines list` prints their names.",
            status=WRONG_INPUT,
        )
    if lately and not yes:
        typer.confirm(
            "This machine was heard of within the last minute. Its trainings are ended when its worker "
            "hears of this. Go on?",
            abort=True,
        )
    released = _in_database(lambda session, settings: forget_machine(session, name))
    if released is None:
        typer.echo(f"Machine {name} is gone already.")
        return
    typer.echo(f"Machine {name} is gone. Jobs released: {released}.")


def _in_database(work: "Callable[[AsyncSession, Settings], Awaitable[Result]]") -> Result:
    from gpubloom.server.db import migrate
    from gpubloom.server.db.database import Database
    from gpubloom.server.settings import SettingsError, load_settings

    try:
        settings = load_settings()
    except SettingsError as error:
        fail(error.code, f"A setting cannot be used. {error}", status=WRONG_INPUT)
    migrate.upgrade(settings.database)

    async def done() -> Result:
        database = Database(settings.database)
        try:
            async with database.write() as session:
                return await work(session, settings)
        finally:
            await database.close()

    return asyncio.run(done())
