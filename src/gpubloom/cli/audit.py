"""`bloom server audit`: verify, export and sign the audit log of this machine's server."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.database import in_database, settings_or_fail
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from gpubloom.server.db.database import Database
    from gpubloom.server.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Verify and export the audit log.")


@app.command()
def verify(
    expect: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that this command printed earlier."),
    ] = None,
) -> None:
    """Check that no entry of the audit log was changed, removed or inserted.

    Prints the head of the log. Note it outside of the server: with --expect, this command also finds
    a database that was set back to an older state.
    """
    from gpubloom.server.audit.chain import Finding, Head
    from gpubloom.server.audit.maintenance import verify as verified

    try:
        noted = None if expect is None else Head.read(expect)
    except InputError as problem:
        refuse(problem)
    settings = _current_settings()
    found = in_database(settings, lambda database: verified(database, settings.home, noted))
    if isinstance(found, Finding):
        fail("audit_tampered", found.sentence)
    echo(f"The audit log is unchanged: {found.sequence:,} entries.\nhead: {found}")


@app.command()
def export(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. [default: standard output]")
    ] = None,
) -> None:
    """Write the audit log as JSON lines, oldest entry first."""
    from gpubloom.server.audit.maintenance import AuditFilter
    from gpubloom.server.audit.maintenance import export as exported

    async def write(database: "Database") -> None:
        file = sys.stdout.buffer if output is None else output.open("xb")
        try:
            async for piece in exported(database, AuditFilter()):
                file.write(piece)
            file.flush()
        finally:
            if output is not None:
                file.close()

    settings = _current_settings()
    try:
        in_database(settings, write)
    except FileExistsError:
        fail("file_exists", f"{output} exists already. Choose another file.", status=WRONG_INPUT)
    except OSError as problem:
        fail("cannot_write", f"Cannot write the export: {problem.strerror}.", status=WRONG_INPUT)


@app.command()
def accept(yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False) -> None:
    """Sign the end of the audit log as it is now.

    Use it when `verify` reports a head without a valid signature and you know why, for example after
    `secret.key` was lost. The audit log records the use of this command.
    """
    from gpubloom.server.audit.maintenance import accept as accepted

    if not yes:
        typer.confirm(
            "Sign the audit log as it is now? Entries that were removed stay unnoticed.", abort=True
        )
    settings = _current_settings()
    head = in_database(settings, lambda database: accepted(database, settings.home))
    echo(f"Signed the audit log.\nhead: {head}")


def _current_settings() -> "Settings":
    from gpubloom.server.db.migrate import current_revision, newest_revision

    settings = settings_or_fail()
    if current_revision(settings.database) != newest_revision():
        fail(
            "database_outdated",
            "The database does not have the newest schema. Run `bloom server database upgrade` first.",
            status=WRONG_INPUT,
        )
    return settings
