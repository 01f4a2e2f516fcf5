"""The tree of all commands of `bloom`: at most 16 names at the top, the others in groups by noun."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup, TyperOption
from typer.models import ArgumentInfo, ParameterInfo

import gpubloom
from gpubloom.cli import (
    accounts,
    alerts,
    audit,
    auth,
    bench,
    card,
    chat,
    checkpoints,
    compare,
    database,
    dataset_files,
    datasets,
    documents,
    evaluate,
    export,
    find_lr,
    finetune,
    invitations,
    jobs,
    machines,
    mirror,
    models,
    offers,
    plan,
    projects,
    providers,
    runs,
    samples,
    schemas,
    script_inspect,
    script_run,
    secrets,
    serve_metrics,
    server,
    storage,
    tensorboard,
    train,
    ui,
    watch,
    what_ran,
)
from gpubloom.cli.old_names import with_new_name
from gpubloom.cli.output import STOPPED, echo, fail

# typer names no more of its errors of the command line than this one.
_UsageError: Any = typer.BadParameter.__base__


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Within it, a command line that cannot be read ends as other wrong input does."""
    try:
        yield
    except _UsageError as problem:
        if type(problem).__name__ == "NoArgsIsHelpError":
            # The help is the answer.
            raise
        if problem.ctx is not None:
            echo(problem.ctx.get_usage(), err=True)
        _name_wrong_value(problem)
        fail("usage", problem.format_message(), status=problem.exit_code)


def _name_wrong_value(problem: Any) -> None:
    """Values of options are refused in the words for fields of a config: pydantic reads both."""
    if problem.__cause__ is None:
        return
    from pydantic import ValidationError

    from gpubloom.plan.validation import value_problem

    if not isinstance(problem.__cause__, ValidationError):
        return
    found: Any = problem.__cause__.errors()[0]
    problem.message = value_problem(found)
    if found["type"] == "uuid_parsing":
        problem.message += f". {problem.param.help}"


@contextmanager
def _interrupted_prompts() -> Iterator[None]:
    """Within it, Ctrl-C at a prompt ends as every other one; typer takes it for a no."""
    try:
        yield
    except typer.Abort as problem:
        if isinstance(problem.__context__, KeyboardInterrupt):
            raise typer.Exit(STOPPED) from None
        raise


class _Commands(TyperGroup):
    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors(), _interrupted_prompts():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Resilient parsing is shell completion: it prints no notes.
        return super().resolve_command(ctx, with_new_name(args, quiet=ctx.resilient_parsing))


app = typer.Typer(
    name="bloom",
    cls=_Commands,
    help="Train and fine-tune language models on your own or rented GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"bloom {gpubloom.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options that come before any command."""


# The panels of `bloom --help`, and of groups whose commands need a server or do not.
_START = "Get started"
_FILES = "Runs, models and data"
_SERVER = "Server and accounts"
_LOCAL = "On this machine"
_REMOTE = "On a server"


def _group(name: str, about: str, panel: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True)
    app.add_typer(group, name=name, help=about, rich_help_panel=panel)
    return group


app.command("up", rich_help_panel=_START)(server.up)
app.command("ui", rich_help_panel=_START)(ui.ui)
app.command("train", rich_help_panel=_START)(train.train)
app.command("finetune", rich_help_panel=_START)(finetune.finetune)
app.command("plan", rich_help_panel=_START)(plan.plan)
app.command("chat", rich_help_panel=_START)(chat.chat)

run_commands = typer.Typer(cls=runs.RunCommands, no_args_is_help=True)
app.add_typer(
    run_commands,
    name="runs",
    help="List, watch, compare, share and convert training runs.",
    rich_help_panel=_FILES,
)
run_commands.command("list")(runs.list_runs)
run_commands.command("label")(runs.label)
run_commands.command("send")(runs.send)
run_commands.command("watch")(watch.watch)
run_commands.command("serve")(serve_metrics.serve_metrics)
run_commands.command("card")(card.card)
run_commands.command("compare")(compare.compare)
run_commands.command("checkpoints")(checkpoints.list_of_run)
run_commands.command("what-ran")(what_ran.what_ran)
run_commands.command("samples")(samples.samples)
run_commands.command("mirror")(mirror.mirror)
run_commands.command("convert-checkpoint")(export.convert)
run_commands.command("average-checkpoints")(export.average)
run_commands.command("config-schema")(schemas.config_schema)
run_commands.add_typer(tensorboard.app, name="tensorboard")
run_commands.add_typer(alerts.app, name="alerts")

app.add_typer(models.app, name="models", rich_help_panel=_FILES)
models.app.command("generate")(chat.generate)
models.app.command("eval")(evaluate.evaluate)
models.app.command("find-lr")(find_lr.find_lr)
models.app.command("bench")(bench.bench)
models.app.command("export")(export.export)

datasets_commands = _group("datasets", "Inspect, convert, download and upload datasets.", _FILES)
datasets_commands.command("inspect", rich_help_panel=_LOCAL)(dataset_files.inspect_file)
datasets_commands.command("preview", rich_help_panel=_LOCAL)(dataset_files.preview)
datasets_commands.command("convert", rich_help_panel=_LOCAL)(dataset_files.convert)
datasets_commands.command("pull", rich_help_panel=_LOCAL)(dataset_files.pull)
datasets_commands.command("list", rich_help_panel=_REMOTE)(datasets.list_datasets)
datasets_commands.command("show", rich_help_panel=_REMOTE)(datasets.show)
datasets_commands.command("upload", rich_help_panel=_REMOTE)(datasets.upload)
datasets_commands.command("from-documents", rich_help_panel=_REMOTE)(documents.from_documents)
datasets_commands.command("questions", rich_help_panel=_REMOTE)(documents.write_questions)
datasets_commands.command("stop-questions", rich_help_panel=_REMOTE)(documents.stop_questions)
datasets_commands.command("continue-questions", rich_help_panel=_REMOTE)(documents.continue_questions)

scripts = _group("scripts", "Run your own training script as a job.", _FILES)
scripts.command("inspect")(script_inspect.inspect_script)
scripts.command("run")(script_run.run_script)

app.add_typer(jobs.app, name="jobs", rich_help_panel=_SERVER)
app.add_typer(projects.app, name="projects", rich_help_panel=_SERVER)
app.add_typer(secrets.app, name="secrets", rich_help_panel=_SERVER)
app.add_typer(providers.app, name="providers", rich_help_panel=_SERVER)
providers.app.command("offers")(offers.offers)
providers.app.add_typer(storage.app, name="storage")

server_commands = typer.Typer(cls=database.DatabaseCommands, no_args_is_help=True)
app.add_typer(
    server_commands,
    name="server",
    help="Run and maintain your own GPU Bloom server.",
    rich_help_panel=_SERVER,
)
server_commands.command("start")(server.start)
server_commands.command("worker")(server.worker)
server_commands.command("rotate-key")(server.rotate_key)
server_commands.command("reset-factors")(accounts.reset_factors)
server_commands.command("openapi")(schemas.openapi)
server_commands.add_typer(database.app, name="database")
server_commands.add_typer(machines.app, name="machines")
server_commands.add_typer(audit.app, name="audit")

auth_commands = _group("auth", "Sign in to a GPU Bloom server, and invite people to it.", _SERVER)
auth_commands.command("login")(auth.login)
auth_commands.command("logout")(auth.logout)
auth_commands.add_typer(invitations.app, name="invitations")


# Flags have no type: also those that typer adds to every command, such as --help.
_type_of_option = TyperOption.display_type_rich


def _type_unless_flag(self: TyperOption, ctx: Any) -> str | None:
    return None if self.is_flag else _type_of_option(self, ctx)


TyperOption.display_type_rich = _type_unless_flag  # type: ignore[method-assign]


def _finish_help(group: typer.Typer, done: set[int]) -> None:
    """What --help shows of every command, for all in the same way.

    What stands in brackets, such as [default: 10]: typer takes it for rich's markup. Paragraphs without the
    line breaks of the source. Arguments in capitals, as in the documentation.
    """
    for command in group.registered_commands:
        if command.callback is None:
            continue
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = escape("\n\n".join(" ".join(part.split()) for part in text.split("\n\n")))
        for name, option in _parameters(command.callback):
            # Several commands share an option.
            if id(option) in done:
                continue
            done.add(id(option))
            if option.help:
                option.help = escape(option.help)
            if option.metavar is None and isinstance(option, ArgumentInfo):
                option.metavar = name.upper()
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _finish_help(inner.typer_instance, done)


def _parameters(callback: Callable[..., Any]) -> Iterator[tuple[str, ParameterInfo]]:
    for name, parameter in inspect.signature(callback).parameters.items():
        for found in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if isinstance(found, ParameterInfo):
                yield name, found


_finish_help(app, set())
