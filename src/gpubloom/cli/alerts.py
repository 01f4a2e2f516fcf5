"""`bloom runs alerts`: channels for alerts on a server, and the webhook of the runs of this machine."""

import json
import os
import sys
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import call, signed_in
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse
from gpubloom.cli.providers import Password, ask_code, ask_password
from gpubloom.cli.tables import print_table

app = typer.Typer(help="Alerts of runs: failed, diverged, stalled, ended.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rules = Annotated[list[str] | None, typer.Option("--on", help="A rule, such as failed. Repeat it for more.")]
Channel = Annotated[UUID, typer.Argument(help="Id of the channel (bloom runs alerts list).")]


@app.command("list")
def list_channels(
    as_json: AsJson = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules instead of the channels.")] = False,
) -> None:
    """List your alert channels on the server, or the rules that there are."""
    found: dict[str, Any] = call("GET", "/alert-channels", query={"all": "true"})
    chosen = found["rules"] if rules else found["items"]
    if as_json:
        echo(json.dumps(chosen, indent=2))
    elif rules:
        print_table({"rule": "id", "when": "text"}, [(rule["name"], rule["title"]) for rule in chosen])
    elif not chosen:
        echo("No channels. Create one: bloom runs alerts add email")
    else:
        print_table(
            {
                "id": "id",
                "name": "text",
                "kind": "text",
                "to": "text",
                "project": "id",
                "rules": "text",
                "state": "text",
            },
            [
                (
                    item["id"],
                    item["name"],
                    item["kind"],
                    item["host"],
                    item["project_id"] or "all",
                    ", ".join(item["rules"]),
                    item["problem"] or ("on" if item["enabled"] else "off"),
                )
                for item in chosen
            ],
        )


@app.command("add")
def add_channel(
    kind: Annotated[str, typer.Argument(help="email, webhook or slack.")],
    name: Annotated[str | None, typer.Option(help="Name of the channel. Default: its kind.")] = None,
    on: Rules = None,
    project: Annotated[UUID | None, typer.Option(help="Project id: only runs of this project.")] = None,
    password: Password = None,
) -> None:
    """Create an alert channel on the server.

    The address of a webhook is typed without echo, or read from standard input. It needs your password: an
    API token cannot send your runs somewhere else.
    """
    body: dict[str, Any] = {"kind": kind, "name": name or kind}
    if kind != "email":
        if sys.stdin.isatty():
            body["address"] = str(typer.prompt("Address of the webhook", hide_input=True))
        else:
            body["address"] = sys.stdin.read().strip()
    if on:
        body["rules"] = on
    if project is not None:
        body["project_id"] = str(project)
    if kind == "email":
        made = call("POST", "/alert-channels", body=body)
    else:
        with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
            made = ask("POST", "/alert-channels", body)
    echo(f"Created the channel {made['name']} ({made['id']}) to {made['host']}.")
    if made["signing_secret"]:
        echo(f"Signing secret, shown only now: {made['signing_secret']}")


@app.command("change")
def change_channel(
    channel: Channel,
    on: Rules = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Turn it on or off.")] = None,
) -> None:
    """Change the rules of a channel, or turn it on or off."""
    change: dict[str, Any] = {"rules": on} if on else {}
    if enabled is not None:
        change["enabled"] = enabled
    made = call("PATCH", f"/alert-channels/{channel}", body=change)
    state = "on" if made["enabled"] else "off"
    echo(f"{made['name']} is {state}. Rules: {', '.join(made['rules'])}")


@app.command("remove")
def remove_channel(channel: Channel) -> None:
    """Delete an alert channel."""
    call("DELETE", f"/alert-channels/{channel}")
    echo("Deleted the channel.")


@app.command("test")
def send_test(
    channel: Annotated[
        UUID | None, typer.Argument(help="Id of a channel on the server. Default: BLOOM_ALERT_WEBHOOK.")
    ] = None,
) -> None:
    """Send a test message to a channel, or to BLOOM_ALERT_WEBHOOK."""
    if channel is not None:
        problem = call("POST", f"/alert-channels/{channel}/test")["problem"]
    else:
        problem = _send_to_webhook()
    if problem is not None:
        fail("alert_not_sent", f"The test message was not delivered: {problem.rstrip('.')}.", status=1)
    echo("The test message was delivered.")


def _send_to_webhook() -> str | None:
    from gpubloom.errors import InputError
    from gpubloom.traincard.alert_rules import Alert
    from gpubloom.traincard.alerts import AlertSettings, send

    try:
        settings = AlertSettings.from_environment(os.environ)
    except InputError as refused:
        refuse(refused)
    if settings is None or not settings.webhook:
        fail(
            "alerts_not_set",
            "Set BLOOM_ALERT_WEBHOOK to the https:// address of a webhook.",
            status=WRONG_INPUT,
        )
    test = Alert("alert", "This is a test", "Alerts of your runs arrive here.", "info")
    return send(settings, test, "bloom", [0.0])
