"""`bloom server reset-factors`: for a person who lost their second factor and the recovery codes."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.database import settings_or_fail
from gpubloom.cli.output import WRONG_INPUT, echo, fail

if TYPE_CHECKING:
    from gpubloom.server.settings import Settings


def reset_factors(
    email: Annotated[str, typer.Argument(help="Email address of the account.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove the second factors of an account.

    Removes the authenticator app, the passkeys and the recovery codes, and signs out all browsers of the
    account. Then the password is enough to sign in. The person gets an email.
    """
    from gpubloom.server.db import migrate

    settings = settings_or_fail()
    if not yes:
        typer.confirm(
            f"Remove the second factors of {email}? Be sure that the person who asks is the owner.",
            abort=True,
        )
    migrate.upgrade(settings.database)
    if not asyncio.run(_reset(settings, email.strip().lower())):
        fail(
            "account_not_found",
            f"There is no account with the email address {email}. Check the address.",
            status=WRONG_INPUT,
        )
    echo(f"The second factors of {email} were removed. The password is enough to sign in.")


async def _reset(settings: "Settings", email: str) -> bool:
    from gpubloom.server.accounts.mail import Mailer, factors_changed
    from gpubloom.server.accounts.registration import find_by_email
    from gpubloom.server.accounts.second_factors import remove_all
    from gpubloom.server.accounts.sessions import end_all_sessions
    from gpubloom.server.audit import SYSTEM, record
    from gpubloom.server.db.database import Database

    database = Database(settings.database, settings.home)
    try:
        async with database.write() as session:
            user = await find_by_email(session, email)
            if user is None:
                return False
            await remove_all(session, user.id)
            await end_all_sessions(session, user.id)
            record(session, SYSTEM, "user.factors_reset", f"user:{user.id}")
    finally:
        await database.close()
    event = "The operator of the server removed the second factors of your account."
    await Mailer(settings).send(factors_changed(settings.address, user.email, user.name, event))
    return True
