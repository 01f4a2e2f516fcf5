"""All commands of `bloom`, gathered; a file holds one command, or a few that belong together."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup
from typer.models import ParameterInfo

import gpubloom
from gpubloom.cli import (
    card,
    chat,
    compare,
    data,
    database,
    datasets,
    evaluate,
    export,
    find_lr,
    finetune,
    jobs,
    login,
    machines,
    mirror,
    models,
    offers,
    plan,
    projects,
    providers,
    requirements,
    schemas,
    serve,
    serve_metrics,
    submit,
    tensorboard,
    train,
    watch,
)
from gpubloom.cli.output import fail

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
            typer.echo(problem.ctx.get_usage(), err=True)
        fail("usage", problem.format_message(), status=problem.exit_code)


class _Commands(TyperGroup):
    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="bloom",
    cls=_Commands,
    help="Train and fine-tune language models, and see every step.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bloom {gpubloom.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options that come before any command."""


app.command("train")(train.train)
app.command("finetune")(finetune.finetune)
app.command("plan")(plan.plan)
app.command("requirements")(requirements.requirements)
app.command("offers")(offers.offers)
app.command("submit")(submit.submit)
app.add_typer(providers.app, name="providers")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command("watch")(watch.watch)
app.command("serve-metrics")(serve_metrics.serve_metrics)
app.command("card")(card.card)
app.command("compare")(compare.compare)
app.command("sample")(chat.sample)
app.command("chat")(chat.chat)
app.command("eval")(evaluate.evaluate)
app.command("export")(export.export)
app.command("convert")(export.convert)
app.command("find-lr")(find_lr.find_lr)
app.command("mirror")(mirror.mirror)
app.add_typer(tensorboard.app, name="tensorboard")
app.add_typer(schemas.app, name="config")
app.command("up")(serve.up)
app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("openapi")(schemas.openapi)
app.add_typer(database.app, name="db")
app.add_typer(machines.app, name="machines")
app.command("login")(login.login)
app.command("logout")(login.logout)
app.add_typer(projects.app, name="projects")
app.add_typer(datasets.app, name="datasets")
app.add_typer(jobs.app, name="jobs")


def _show_brackets(group: typer.Typer, done: set[int]) -> None:
    """Have --help show what stands in brackets, such as [default: 10]; typer takes it for rich's markup."""
    for command in group.registered_commands:
        if command.callback is None:
            continue
        command.help = escape(command.help or inspect.getdoc(command.callback) or "")
        for option in _options(command.callback):
            # Several commands share an option.
            if option.help and id(option) not in done:
                done.add(id(option))
                option.help = escape(option.help)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _show_brackets(inner.typer_instance, done)


def _options(callback: Callable[..., Any]) -> list[ParameterInfo]:
    described = []
    for parameter in inspect.signature(callback).parameters.values():
        described += [parameter.default, *getattr(parameter.annotation, "__metadata__", ())]
    return [option for option in described if isinstance(option, ParameterInfo)]


_show_brackets(app, set())
