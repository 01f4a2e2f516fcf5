"""`bloom providers`: providers of GPUs, and your accounts there."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gpubloom.cli.api_client import call, signed_in
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.cli.tables import new_console, print_table
from gpubloom.errors import InputError, shell_word
from gpubloom.json_files import read_json

app = typer.Typer(no_args_is_help=True, help="Connect GPU providers and compare their offers.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Provider name from `bloom providers list`.")]
# Only as a variable: an option would end up in the history of the shell and in process lists.
Password = Annotated[str | None, typer.Option(envvar="BLOOM_PASSWORD", hidden=True)]


@app.command("list")
def list_providers(as_json: AsJson = False) -> None:
    """List the providers and their connection status."""
    found = call("GET", "/providers")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    print_table(
        {"provider": "id", "status": "text"}, [(item["name"], _state(item)) for item in found["items"]]
    )
    if not all(item["connected"] for item in found["items"] if item["available"]):
        echo("Connect a provider: bloom providers connect PROVIDER")
    stores = {item["store"]["title"] for item in found["items"] if item.get("store")}
    if stores:
        echo(f"Files of jobs go through: {', '.join(sorted(stores))}")
    if not found["storage"]["ready"]:
        new_console().print(f"\n{found['storage']['reason']}")


@app.command()
def connect(
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the credentials as one object. Without --file, bloom asks for them.",
            dir_okay=False,
        ),
    ] = None,
    password: Password = None,
) -> None:
    """Connect your account at a provider.

    The server checks the credentials, encrypts them, and never shows them again.
    """
    item = _find(name)
    if not item["available"]:
        fail("provider_unavailable", item["reason"], status=WRONG_INPUT)
    values = _entered(item) if file is None else _read(file)
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        item = ask("PUT", f"/providers/{name}/credentials", {"values": values})
    echo(f"{item['title']}: {_state(item)}")


@app.command()
def check(name: Name) -> None:
    """Check whether the stored credentials of a provider are still valid."""
    item = call("POST", f"/providers/{name}/check")
    echo(f"{item['title']}: {_state(item)}")
    if item["problem"]:
        raise typer.Exit(1)


@app.command()
def disconnect(name: Name, password: Password = None) -> None:
    """Delete the stored credentials of a provider."""
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        ask("DELETE", f"/providers/{name}/credentials")
    echo(f"Disconnected {name}. Its credentials were deleted.")


@app.command("credits")
def list_credits(as_json: AsJson = False) -> None:
    """List your remaining credits at providers.

    The cost of your jobs since you stated an amount is subtracted from it.
    """
    found = call("GET", "/credits")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if not found["items"]:
        echo("No credits are stated. State one: bloom providers set-credit PROVIDER DOLLARS")
        return
    print_table(
        {"provider": "id", "left $": "number", "stated $": "number", "on": "text", "spent since $": "number"},
        [
            (
                item["provider"],
                f"{item['remaining']:.2f}",
                f"{item['amount']:.2f}",
                item["stated_at"][:10],
                f"{item['spent']:.2f}",
            )
            for item in found["items"]
        ],
    )


@app.command("set-credit")
def set_credit(
    name: Annotated[str, typer.Argument(help="Provider name, such as modal, lambda or runpod.")],
    dollars: Annotated[float, typer.Argument(help="Credit that is left, in US dollars.", min=0)],
    as_of: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            help="Day for which the amount holds. Costs since then count. [default: now]",
        ),
    ] = None,
) -> None:
    """State the credit that is left at a provider. Offers there count as paid until it is used up."""
    body = {"amount": dollars, "as_of": None if as_of is None else as_of.date().isoformat()}
    item = call("PUT", f"/credits/{quote(name, safe='')}", body=body)
    echo(f"{item['title']}: ${item['remaining']:.2f} of credit left.")


@app.command("remove-credit")
def remove_credit(name: Annotated[str, typer.Argument(help="Provider name.")]) -> None:
    """Forget the credit that you stated for a provider."""
    call("DELETE", f"/credits/{quote(name, safe='')}")
    echo(f"Removed the credit at {name}.")


@app.command("replicate-model")
def replicate_model(
    folder: Annotated[Path, typer.Argument(help="New folder to write to.")],
    package: Annotated[
        list[str] | None,
        typer.Option(help="Python package in the image; may be repeated. [default: torch, numpy]"),
    ] = None,
) -> None:
    """Write the files of a Replicate model that runs training jobs.

    Push the model to Replicate once, with Cog.
    """
    from gpubloom.providers.replicate.cog_model import model_files

    if folder.exists() and any(folder.iterdir()):
        fail("folder_not_empty", f"{folder} is not empty: choose a new folder.", status=WRONG_INPUT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (model_files(tuple(package)) if package else model_files()).items():
        (folder / name).write_text(text, encoding="utf-8")
    echo(f"Push the model: cd {shell_word(folder)} && cog login && cog push r8.im/OWNER/NAME")
    echo("Then run `bloom providers connect replicate` and enter OWNER/NAME:VERSION from Cog's output.")


def _find(name: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = call("GET", "/providers")["items"]
    found = next((item for item in items if item["name"] == name), None)
    if found is None:
        fail(
            "unknown_provider",
            f"Unknown provider {name!r}. Known providers: {', '.join(item['name'] for item in items)}.",
            status=WRONG_INPUT,
        )
    return found


def _state(item: dict[str, Any]) -> str:
    if not item["available"]:
        return f"not available: {item['reason']}"
    if item["problem"]:
        return f"problem: {item['problem']}"
    if item["connected"]:
        return f"connected ({item['account']})" if item["account"] else "connected"
    return "not connected"


def _entered(item: dict[str, Any]) -> dict[str, str]:
    values = {}
    echo(f"Create the credentials at {item['page']}", err=True)
    for field in item["fields"]:
        if field["hint"]:
            echo(field["hint"])
        default = None if field["required"] else ""
        answer = typer.prompt(field["title"], hide_input=field["secret"], default=default, show_default=False)
        if answer:
            values[field["name"]] = answer
    return values


def _read(file: Path) -> dict[str, str]:
    try:
        found = read_json(file)
    except InputError as problem:
        refuse(problem)
    if not all(isinstance(value, str) for value in found.values()):
        fail(
            "not_json_object",
            f"{file} must contain a JSON object whose values are strings.",
            status=WRONG_INPUT,
        )
    return found


def ask_code() -> str:
    """Typed without echo."""
    return str(typer.prompt("Code of your authenticator app, or a recovery code", hide_input=True))


def ask_password(email: str) -> str:
    """Typed without echo."""
    return str(typer.prompt(f"Password of {email} on this server", hide_input=True))
