"""`bloom runs alerts`: check the webhook to which the runs of this machine send their alerts."""

import os

import typer

from gpubloom.cli.output import WRONG_INPUT, fail, refuse

app = typer.Typer(help="Alerts of runs: failed, diverged, stalled, ended.", no_args_is_help=True)


@app.command("test")
def send_test() -> None:
    """Send a test message to BLOOM_ALERT_WEBHOOK."""
    from gpubloom.errors import InputError
    from gpubloom.traincard.alerts import Alert, AlertSettings, send

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
    problem = send(
        settings, Alert("alert", "This is a test", "Alerts of your runs arrive here.", "info"), "bloom", [0.0]
    )
    if problem is not None:
        fail("alert_not_sent", f"The test message was not delivered: {problem}.", status=1)
    typer.echo("The test message was delivered.")
