"""`bloom auth invitations`: invite people to a server. For admins.

Listing and revoking work with an API token of scope `admin`. Inviting asks for your password: a leaked token
must not be able to let somebody in.
"""

import json
from typing import Annotated, Any

import typer

from gpubloom.cli.api_client import call, signed_in
from gpubloom.cli.output import WRONG_INPUT, echo, fail
from gpubloom.cli.providers import Password, ask_code, ask_password
from gpubloom.cli.tables import print_table

app = typer.Typer(no_args_is_help=True, help="Invite people to the server (admins only).")

Email = Annotated[str, typer.Argument(help="Email address of the person.")]


@app.command("list")
def list_invitations(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the invitations that can still be used."""
    items = _open_invitations()
    if as_json:
        echo(json.dumps(items, indent=2))
    elif not items:
        echo("No invitation is open. Invite a person: bloom auth invitations create EMAIL")
    else:
        print_table(
            {"email": "id", "role": "text", "invited by": "text", "expires": "text"},
            [
                (item["email"], item["role"], item["inviter"]["email"], item["expires_at"][:10])
                for item in items
            ],
        )


@app.command()
def create(
    email: Email,
    admin: Annotated[bool, typer.Option("--admin", help="The new account gets the admin role.")] = False,
    password: Password = None,
) -> None:
    """Invite a person, and print the one-time link.

    Asks for your password. An earlier invitation of the same address ends.
    """
    with signed_in(lambda own_email: password or ask_password(own_email), ask_code) as ask:
        made = ask("POST", "/invitations", {"email": email, "role": "admin" if admin else "member"})
    echo(f"Send this link to {made['email']}. It works once, until {made['expires_at'][:10]}.")
    echo(made["link"])


@app.command()
def revoke(email: Email) -> None:
    """Revoke the invitation of a person. Its link stops working at once."""
    found = next((item for item in _open_invitations() if item["email"] == email.lower()), None)
    if found is None:
        fail(
            "invitation_not_found",
            f"There is no open invitation for {email}. For the list, run: bloom auth invitations list",
            status=WRONG_INPUT,
        )
    call("DELETE", f"/invitations/{found['id']}")
    echo(f"Revoked the invitation of {found['email']}.")


def _open_invitations() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = call("GET", "/invitations")["items"]
    return items
