"""`bloom providers storage`: what the files of jobs on rented machines go through. For admins."""

import json
from typing import Annotated, Any, Literal

import typer

from gpubloom.cli.api_client import call, signed_in
from gpubloom.cli.output import echo, fail
from gpubloom.cli.providers import ask_code, ask_password

app = typer.Typer(no_args_is_help=True, help="Set up where jobs on rented machines keep their files.")

# Only as variables: an option would end up in the history of the shell and in process lists.
Password = Annotated[str | None, typer.Option(envvar="BLOOM_PASSWORD", hidden=True)]
SecretKey = Annotated[str | None, typer.Option(envvar="BLOOM_BUCKET_SECRET", hidden=True)]
_MARKS = {True: "ok", False: "failed", None: "not tried"}


@app.command()
def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the storage bucket, and whether this server itself can be the store."""
    found = call("GET", "/storage-bucket")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if found["bucket"] is None:
        echo(
            "Bucket: none. Set one up: bloom providers storage set. How to create one: bloom providers "
            "storage guide r2"
        )
    else:
        where = found["endpoint"] or f"the {found['kind']} service's own address"
        by = "BLOOM_STORAGE_*" if found["source"] == "environment" else "an admin"
        echo(f"Bucket: {found['bucket']} at {where}, set up by {by}")
    reason = found["server_store_reason"]
    echo("This server: can be the store" if reason is None else f"This server: no. {reason}")


@app.command("set")
def set_bucket(
    bucket: Annotated[str, typer.Option(help="Name of the bucket.", prompt="Bucket")],
    access_key: Annotated[str, typer.Option(help="Access key ID.", prompt="Access key ID")],
    endpoint: Annotated[
        str,
        typer.Option(help="Address of the service, without the bucket. Empty: Amazon's, Google's, Azure's."),
    ] = "",
    region: Annotated[str, typer.Option(help="Region of the bucket; auto at Cloudflare R2.")] = "us-east-1",
    prefix: Annotated[str, typer.Option(help="Folder in the bucket.")] = "",
    kind: Annotated[Literal["s3", "gcs", "azure"], typer.Option(help="Kind of service.")] = "s3",
    secret_key: SecretKey = None,
    password: Password = None,
) -> None:
    """Test a bucket and save it.

    bloom asks for the secret key, or reads it from BLOOM_BUCKET_SECRET. The server encrypts the secret key
    and never shows it again. Nothing is saved unless every step of the test succeeds.
    """
    secret = secret_key or typer.prompt("Secret key", hide_input=True)
    body = {
        "kind": kind,
        "bucket": bucket,
        "access_key": access_key,
        "secret_key": secret,
        "endpoint": endpoint,
        "region": region,
        "prefix": prefix,
    }
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        test = ask("PUT", "/storage-bucket", body)
    _print(test)
    echo("Saved. The next rented job uses this bucket.")


@app.command()
def check() -> None:
    """Test the bucket in use: write, list, upload through a presigned address, delete."""
    _print(call("POST", "/storage-bucket/check"))


@app.command()
def remove(password: Password = None) -> None:
    """Forget the bucket. Nothing is deleted in the bucket."""
    with signed_in(lambda email: password or ask_password(email), ask_code) as ask:
        ask("DELETE", "/storage-bucket")
    echo("The storage bucket is no longer used.")


@app.command()
def guide(
    service: Annotated[
        Literal["r2", "b2", "s3"], typer.Argument(help="Cloudflare R2, Backblaze B2, AWS S3.")
    ],
) -> None:
    """Print how to create a bucket and its key at a service."""
    from gpubloom.storage.guides import GUIDES

    found = next(each for each in GUIDES if each.name == service)
    echo(f"{found.title}: {found.page}")
    for number, step in enumerate(found.steps, start=1):
        echo(f"{number}. {step}")
    endpoint = f" --endpoint '{found.endpoint}'" if found.endpoint else ""
    echo(f"Then: bloom providers storage set --bucket NAME --access-key KEY{endpoint} --region REGION")
    echo(f"Region: {found.region}")


def _print(test: dict[str, Any]) -> None:
    """The steps; ends the command when one failed."""
    for step in test["steps"]:
        echo(f"{_MARKS[step['ok']]:10}{step['title']}")
    failed = next((step for step in test["steps"] if step["ok"] is False), None)
    if failed is not None:
        fail("bucket_unavailable", failed["problem"])
