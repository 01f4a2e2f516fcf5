"""`bloom projects`: projects on a server, the same as in the web app."""

import json
from typing import Annotated, Any
from uuid import UUID

import typer

from gpubloom.cli.api_client import call
from gpubloom.cli.output import echo
from gpubloom.cli.tables import print_table

app = typer.Typer(no_args_is_help=True, help="List, create, edit and delete projects on a server.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ProjectId = Annotated[UUID, typer.Argument(help="Project id from `bloom projects list`.")]
Description = Annotated[str | None, typer.Option(help="Description of the project.")]
DataPath = Annotated[str | None, typer.Option(help="Path of the training data on the server, or s3://….")]


def _show(project: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo(json.dumps(project, indent=2))
        return
    echo(f"{project['name']} ({project['id']})")
    size = project["modelSize"]
    facts = [project["modelArchitecture"], None if size is None else f"{size:g} B parameters"]
    if any(facts):
        echo(f"  {', '.join(filter(None, facts))}")
    if project["modelPreset"]:
        echo(f"  model of its jobs: {project['modelPreset']['label']}")
    for label, field in (("data", "trainingDataPath"), ("description", "description")):
        if project[field]:
            echo(f"  {label}: {project[field]}")


def _size(billions: float | None) -> str:
    return "—" if billions is None else f"{billions:g} B"


@app.command("list")
def list_projects(
    search: Annotated[
        str, typer.Option(help="Only list projects with this text in their name or description.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List your projects, last changed first."""
    page = call("GET", "/projects", query={"search": search, "limit": 200})
    if as_json:
        echo(json.dumps(page["items"], indent=2))
        return
    if not page["items"]:
        echo("No projects found. Create a project: bloom projects create NAME --size 7")
        return
    print_table(
        {"id": "id", "size": "number", "name": "text"},
        [(project["id"], _size(project["modelSize"]), project["name"]) for project in page["items"]],
    )
    if page["total"] > len(page["items"]):
        echo(f"{page['total'] - len(page['items'])} more projects. Filter the list with --search.")


@app.command()
def show(project_id: ProjectId, as_json: AsJson = False) -> None:
    """Show one project."""
    _show(call("GET", f"/projects/{project_id}"), as_json)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the project.")],
    size: Annotated[float, typer.Option(help="Model size in billions of parameters, such as 130.")],
    architecture: Annotated[
        str, typer.Option(help="Model architecture: transformer or custom.")
    ] = "transformer",
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
    _show(call("POST", "/projects", body=body), as_json)


@app.command()
def edit(
    project_id: ProjectId,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    size: Annotated[float | None, typer.Option(help="Model size in billions of parameters.")] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Model architecture: transformer or custom.")
    ] = None,
    description: Description = None,
    data: DataPath = None,
    as_json: AsJson = False,
) -> None:
    """Edit a project.

    Fields without an option stay unchanged. An empty text removes the description or the data path.
    """
    project = call("GET", f"/projects/{project_id}")
    changes = {
        "name": name,
        "modelSize": size,
        "modelArchitecture": architecture,
        "description": description,
        "trainingDataPath": data,
    }
    body = {field: project[field] if value is None else value for field, value in changes.items()}
    _show(call("PUT", f"/projects/{project_id}", body=body), as_json)


@app.command()
def delete(
    project_id: ProjectId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a project and everything in it."""
    project = call("GET", f"/projects/{project_id}")
    if not yes:
        typer.confirm(f"Delete {project['name']!r} and everything in it?", abort=True)
    call("DELETE", f"/projects/{project_id}")
    echo(f"Deleted {project['name']}.")
