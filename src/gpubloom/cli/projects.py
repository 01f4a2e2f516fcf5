"""`bloom projects`: the same projects as in the web app."""

import json
from typing import Annotated, Any
from uuid import UUID

import typer

app = typer.Typer(no_args_is_help=True, help="List, create, change and delete projects on a server.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ProjectId = Annotated[UUID, typer.Argument(help="The project's id, as `bloom projects list` prints it.")]
Description = Annotated[str | None, typer.Option(help="What the project is about.")]
DataPath = Annotated[str | None, typer.Option(help="Training data: a path the server may read, or s3://….")]


def _call(method: str, path: str, **arguments: Any) -> Any:
    # Loaded here, so that `bloom --help` does not wait for an HTTP client.
    from gpubloom.cli.api_client import call

    return call(method, path, **arguments)


def _show(project: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(project, indent=2))
        return
    typer.echo(f"{project['name']}  ({project['id']})")
    typer.echo(f"  {project['modelArchitecture']}, {project['modelSize']:g} B parameters")
    for label, field in (("data", "trainingDataPath"), ("about", "description")):
        if project[field]:
            typer.echo(f"  {label}: {project[field]}")


@app.command("list")
def list_projects(
    search: Annotated[str, typer.Option(help="Only those with this in name or description.")] = "",
    as_json: AsJson = False,
) -> None:
    """List your projects, the one changed last first."""
    page = _call("GET", "/projects", query={"search": search, "limit": 200})
    if as_json:
        typer.echo(json.dumps(page["items"], indent=2))
        return
    for project in page["items"]:
        typer.echo(f"{project['id']}  {project['modelSize']:>8g} B  {project['name']}")
    if not page["items"]:
        typer.echo("No projects yet. Create one: bloom projects create NAME --size 7")
    elif page["total"] > len(page["items"]):
        typer.echo(f"… and {page['total'] - len(page['items'])} more: narrow them down with --search")


@app.command()
def show(project_id: ProjectId, as_json: AsJson = False) -> None:
    """Show one project."""
    _show(_call("GET", f"/projects/{project_id}"), as_json)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The project's name.")],
    size: Annotated[float, typer.Option(help="Model size in billions of parameters.")],
    architecture: Annotated[str, typer.Option(help="transformer or custom.")] = "transformer",
    description: Description = None,
    data: DataPath = None,
    as_json: AsJson = False,
) -> None:
    """Create a project."""
    body = {
        "name": name,
        "modelSize": size,
        "modelArchitecture": architecture,
        "description": description,
        "trainingDataPath": data,
    }
    _show(_call("POST", "/projects", body=body), as_json)


@app.command()
def edit(
    project_id: ProjectId,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    size: Annotated[float | None, typer.Option(help="Model size in billions of parameters.")] = None,
    architecture: Annotated[str | None, typer.Option(help="transformer or custom.")] = None,
    description: Description = None,
    data: DataPath = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given, keep the rest; an empty text removes a description or data path."""
    project = _call("GET", f"/projects/{project_id}")
    changes = {
        "name": name,
        "modelSize": size,
        "modelArchitecture": architecture,
        "description": description,
        "trainingDataPath": data,
    }
    body = {field: project[field] if value is None else value for field, value in changes.items()}
    _show(_call("PUT", f"/projects/{project_id}", body=body), as_json)


@app.command()
def delete(
    project_id: ProjectId, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Delete a project."""
    project = _call("GET", f"/projects/{project_id}")
    if not yes:
        typer.confirm(f"Delete {project['name']!r} and everything in it?", abort=True)
    _call("DELETE", f"/projects/{project_id}")
    typer.echo(f"Deleted {project['name']}.")
