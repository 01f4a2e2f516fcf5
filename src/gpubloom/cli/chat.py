"""`bloom chat`: talk to a model in the terminal. It runs in a child process; this file knows no torch."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpubloom.cli.conversation import Conversation, Settings

_IDLE_MINUTES = 120.0
_HINT = "Ctrl-C stops an answer, twice quits; /new forgets the conversation."


def chat(
    model: Annotated[Path, typer.Argument(help="A run directory, a checkpoint or a model folder.")],
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Ask this, print the answer, and end.")
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="Ask the model it was tuned from.")] = False,
    base_model: Annotated[
        Path | None,
        typer.Option(help="The folder of the model it was tuned from; an adapter alone needs it."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Ask both, one after the other.")] = False,
    system: Annotated[str | None, typer.Option(help="What the model is told before the first turn.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="0 takes the likeliest token.")] = 0.7,
    top_p: Annotated[float, typer.Option(min=0.001, max=1.0, help="Leave unlikely tokens out.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="How much to write at most.")] = 512,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeats what was drawn.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Talk to a trained model, or to one still in training; or let it continue a text."""
    from gpubloom.cli.child_process import Stopped
    from gpubloom.cli.conversation import Settings
    from gpubloom.cli.task_process import TaskFailed

    settings = Settings(temperature, top_p, max_tokens, seed)
    try:
        _chat(
            model,
            prompt,
            settings,
            base=base,
            base_model=base_model,
            compare=compare,
            system=system,
            device=device,
        )
    except ValueError as problem:
        typer.echo(f"bloom chat: {problem}", err=True)
        raise typer.Exit(2) from None
    except TaskFailed as problem:
        typer.echo(f"bloom chat: the model's process ended: {problem}", err=True)
        raise typer.Exit(1) from None
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(130) from None


def _chat(
    model: Path,
    prompt: str | None,
    settings: "Settings",
    *,
    base: bool,
    base_model: Path | None,
    compare: bool,
    system: str | None,
    device: str,
) -> None:
    from gpubloom.cli.conversation import Conversation
    from gpubloom.cli.task_process import running
    from gpubloom.plan.tasks import task_from

    if not model.is_dir():
        raise ValueError(f"There is no run directory and no model folder {model}.")
    fields = {
        "kind": "serve",
        "model": str(model.resolve()),
        "base": None if base_model is None else str(base_model.expanduser().resolve()),
        "device": device,
        "idle_minutes": _IDLE_MINUTES,
    }
    with running(task_from(fields)) as task:
        if prompt is None and sys.stderr.isatty():
            typer.echo("Loading …", err=True)
        served = task.wait_for("serve.json")
        names = _names(served["models"], base=base, compare=compare)
        with Conversation(served, names, settings, system) as conversation:
            if prompt is not None:
                conversation.ask(prompt)
                return
            typer.echo(conversation.introduction(), err=True)
            typer.echo(_HINT, err=True)
            _converse(conversation)


def _names(there: list[str], *, base: bool, compare: bool) -> list[str]:
    if (base or compare) and "base" not in there:
        raise ValueError("Nothing says what this model was tuned from: leave out --base and --compare.")
    if compare:
        return there
    return ["base"] if base else there[-1:]


def _converse(conversation: "Conversation") -> None:
    """Until the end of the input, /quit, or Ctrl-C twice in a row."""
    was_interrupted = False
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
            was_interrupted = False
            if line.strip() == "/quit":
                return
            if line.strip() == "/new":
                conversation.forget()
            elif line.strip():
                conversation.ask(line)
        except KeyboardInterrupt:
            typer.echo("")
            if was_interrupted:
                return
            was_interrupted = True
        except ValueError as problem:
            # Said by the model's process; the conversation can go on.
            typer.echo(str(problem), err=True)
        except EOFError:
            return
