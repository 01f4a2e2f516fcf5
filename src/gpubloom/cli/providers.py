"""`bloom providers`: the services that rent out GPUs, and your accounts there."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubloom.cli.output import WRONG_INPUT, fail

app = typer.Typer(no_args_is_help=True, help="List, connect and check services that rent out GPUs.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Name = Annotated[str, typer.Argument(help="A service, as `bloom providers list` prints it.")]
# No option for it: it would end up in the shell's history and in process lists.
Password = Annotated[str | None, typer.Option(envvar="BLOOM_PASSWORD", hidden=True)]


@app.command("list")
def list_providers(as_json: AsJson = False) -> None:
    """List services, whether they can be used, and whether you are connected."""
    from gpubloom.cli.api_client import call

    found = call("GET", "/providers")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for item in found["items"]:
        typer.echo(f"{item['name']:<11} {_state(item)}")
    if not found["storage"]["ready"]:
        typer.echo(f"\nNothing can be sent yet: {found['storage']['reason']}")


@app.command()
def connect(
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option(help="A JSON object with what is asked for; otherwise you are asked.", dir_okay=False),
    ] = None,
    password: Password = None,
) -> None:
    """Connect your account at a service. What you enter is tried, sealed, and never shown again."""
    from gpubloom.cli.api_client import signed_in

    item = _find(name)
    if not item["available"]:
        fail("provider_unavailable", item["reason"], status=WRONG_INPUT)
    values = _entered(item) if file is None else _read(file)
    with signed_in(lambda email: password or _ask_password(email)) as ask:
        item = ask("PUT", f"/providers/{name}/credentials", {"values": values})
    typer.echo(f"{item['title']}: {_state(item)}")


@app.command()
def check(name: Name) -> None:
    """Ask a service whether what you entered is still good."""
    from gpubloom.cli.api_client import call

    item = call("POST", f"/providers/{name}/check")
    typer.echo(f"{item['title']}: {_state(item)}")
    if item["problem"]:
        raise typer.Exit(1)


@app.command()
def disconnect(name: Name, password: Password = None) -> None:
    """Forget what you entered for a service."""
    from gpubloom.cli.api_client import signed_in

    with signed_in(lambda email: password or _ask_password(email)) as ask:
        ask("DELETE", f"/providers/{name}/credentials")
    typer.echo(f"{name} is not connected any more.")


@app.command("replicate-model")
def replicate_model(
    folder: Annotated[Path, typer.Argument(help="A new folder for its files.")],
    package: Annotated[
        list[str] | None, typer.Option(help="What its image holds; may be repeated. [default: torch, numpy]")
    ] = None,
) -> None:
    """Write the model that Replicate trains for us. It is pushed there once, with Cog."""
    from gpubloom.providers.replicate.cog_model import model_files

    if folder.exists() and any(folder.iterdir()):
        fail("folder_not_empty", f"{folder} is not empty: name a new folder.", status=WRONG_INPUT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (model_files(tuple(package)) if package else model_files()).items():
        (folder / name).write_text(text, encoding="utf-8")
    typer.echo(f"Now push it: cd {folder} && cog login && cog push r8.im/OWNER/NAME")
    typer.echo("Then connect with OWNER/NAME:VERSION, as Cog prints it: bloom providers connect replicate")


def _find(name: str) -> dict[str, Any]:
    from gpubloom.cli.api_client import call

    items: list[dict[str, Any]] = call("GET", "/providers")["items"]
    found = next((item for item in items if item["name"] == name), None)
    if found is None:
        fail(
            "unknown_provider",
            f"There is no service {name!r}; there are: {', '.join(item['name'] for item in items)}.",
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
    return f"not connected; {item['title']}'s own page: {item['page']}"


def _entered(item: dict[str, Any]) -> dict[str, str]:
    values = {}
    for field in item["fields"]:
        if field["hint"]:
            typer.echo(field["hint"])
        default = None if field["required"] else ""
        answer = typer.prompt(field["title"], hide_input=field["secret"], default=default, show_default=False)
        if answer:
            values[field["name"]] = answer
    return values


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        fail("unreadable_file", f"{file} cannot be read: {problem}.", status=WRONG_INPUT)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        fail("not_json_object", f"{file} holds no JSON object of texts.", status=WRONG_INPUT)
    return found


def _ask_password(email: str) -> str:
    return str(typer.prompt(f"Password of {email} on this server", hide_input=True))
