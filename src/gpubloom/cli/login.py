"""`bloom login` and `bloom logout`: give the command line an API token, and take it away."""

import sys
from typing import Annotated

import typer

from gpubloom.cli.credentials import DEFAULT_SERVER, Credentials, forget_credentials, store_credentials


def login(
    server: Annotated[
        str, typer.Option(envvar="BLOOM_SERVER", help="The server's address, as `make run` printed it.")
    ] = DEFAULT_SERVER,
    # No option for the token itself: it would end up in the shell's history and in process lists.
    token: Annotated[str | None, typer.Option(envvar="BLOOM_TOKEN", hidden=True)] = None,
) -> None:
    """Store an API token, made in the web app under Settings, for later commands."""
    from gpubloom.cli.api_client import call, fail

    server = server.rstrip("/") if "://" in server else f"http://{server.rstrip('/')}"
    token = (token or _asked_for()).strip()
    if not token.startswith("bloom_"):
        fail("This is no API token: those begin with bloom_. The web app makes one under Settings.", code=2)
    me = call("GET", "/me", credentials=Credentials(server=server, token=token))
    path = store_credentials(server, token)
    typer.echo(f"Signed in to {server} as {me['name']} <{me['email']}>. The token is in {path}.")


def _asked_for() -> str:
    """Typed without being shown, or the first line of what is piped in."""
    if sys.stdin.isatty():
        return str(typer.prompt("API token", hide_input=True))
    return sys.stdin.readline()


def logout() -> None:
    """Forget the stored API token. It stays valid until it is revoked in the web app."""
    typer.echo("The stored API token was removed." if forget_credentials() else "No API token was stored.")
