"""`bloom secrets`: named secrets that jobs get as environment variables. Values are never arguments."""

import json
import sys
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import call, signed_in
from gpubloom.cli.output import WRONG_INPUT, echo, fail
from gpubloom.cli.providers import Password, ask_code, ask_password
from gpubloom.cli.tables import print_table

app = typer.Typer(no_args_is_help=True, help="Store secrets, such as HF_TOKEN, for your jobs.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of the environment variable, such as HF_TOKEN.")]
Project = Annotated[UUID | None, typer.Option(help="Project id: the secret is for its jobs only.")]


def _path(name: str, project: UUID | None) -> str:
    return f"/secrets/{name}" + ("" if project is None else f"?project_id={project}")


@app.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the names of your secrets. Values are never shown."""
    items: list[dict[str, Any]] = call("GET", "/secrets", query={"all": "true"})["items"]
    if as_json:
        echo(json.dumps(items, indent=2))
        return
    if not items:
        echo("No secrets are stored. Store one: bloom secrets set HF_TOKEN")
        return
    print_table(
        {"name": "id", "project": "id", "changed": "text"},
        [(item["name"], item["project_id"] or "all", item["updated_at"][:10]) for item in items],
    )


@app.command("set")
def set_secret(name: Name, project: Project = None, password: Password = None) -> None:
    """Store a secret, or replace its value.

    The value is typed without echo, or read from standard input.
    """
    if sys.stdin.isatty():
        value = str(typer.prompt(f"Value of {name}", hide_input=True))
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        fail("secret_missing", "The value is empty.", status=WRONG_INPUT)
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        ask("PUT", _path(name, project), {"value": value})
    echo(f"Stored {name}. Jobs that start from now on get it.")


@app.command("delete")
def delete_secret(name: Name, project: Project = None, password: Password = None) -> None:
    """Delete a secret. Jobs that need it and have not started yet fail."""
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        ask("DELETE", _path(name, project))
    echo(f"Deleted {name}.")
