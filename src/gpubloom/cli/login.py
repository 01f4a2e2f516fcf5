"""`bloom login` and `bloom logout`: give the command line an API token, and take it away."""

from typing import Annotated

import typer

from gpubloom.cli.credentials import DEFAULT_SERVER, Credentials, forget_credentials, store_credentials


def login(
    server: Annotated[
        str, typer.Option(envvar="BLOOM_SERVER", help="The server's address.")
    ] = DEFAULT_SERVER,
    # No option for the token itself: it would end up in the shell's history and in process lists.
    token: Annotated[str | None, typer.Option(envvar="BLOOM_TOKEN", hidden=True)] = None,
) -> None:
    """Store an API token, made in the web app under Settings, for later commands."""
    from gpubloom.cli.api_client import call

    token = token or typer.prompt("API token", hide_input=True)
    me = call("GET", "/me", credentials=Credentials(server=server.rstrip("/"), token=token.strip()))
    path = store_credentials(server, token.strip())
    typer.echo(f"Signed in to {server} as {me['name']} <{me['email']}>. The token is in {path}.")


def logout() -> None:
    """Forget the stored API token. It stays valid until it is revoked in the web app."""
    typer.echo("The stored API token was removed." if forget_credentials() else "No API token was stored.")
