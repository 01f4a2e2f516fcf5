"""`bloom chat` and `bloom models generate`: text from a model, in the terminal.

The model runs in a child process; no torch here. `bloom chat` sends messages to a served model over its
loopback port, `bloom models generate` prints the output of one process.
"""

import codecs
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any, Self

import typer

from gpubloom.cli.output import STOPPED, echo, fail, refuse, report
from gpubloom.errors import UNKNOWN, InputError, code_of

_IDLE_MINUTES = 120.0
_HINT = "Press Ctrl-C to stop an answer, twice to quit. Type /new to start a new conversation, /quit to quit."


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None

    def fields(self, context_length: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": min(self.max_tokens, context_length),
        }
        return fields if self.seed is None else fields | {"seed": self.seed}


class Conversation:
    """A chat with one model, or with two that get the same messages and keep their own answers."""

    def __init__(
        self, served: dict[str, Any], names: list[str], settings: Sampling, system: str | None
    ) -> None:
        """`served` is the content of serve.json."""
        import httpx2 as httpx

        self._names = names
        self._settings = settings.fields(served["context_length"])
        self._chats: bool = served["chat_template"]
        if system is not None and not self._chats:
            raise InputError(
                "no_chat_template",
                "This model has no chat template, so it takes no system prompt: leave out --system.",
            )
        self._begin = [] if system is None else [{"role": "system", "content": system}]
        self._turns: dict[str, list[dict[str, str]]] = {}
        self.forget()
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{served['port']}/v1",
            headers={"Authorization": f"Bearer {served['token']}"},
            # A long prompt on a slow machine takes its time.
            timeout=httpx.Timeout(10, read=None),
            trust_env=False,
        )

    def introduction(self) -> str:
        who = " and ".join(self._names)
        if self._chats:
            return f"Chat with {who}."
        return f"{who[0].upper()}{who[1:]} has no chat template: the model continues the text that you type."

    def forget(self) -> None:
        """Starts a new conversation."""
        self._turns = {name: list(self._begin) for name in self._names}

    def ask(self, text: str) -> None:
        """Prints the answers; ValueError with the server's message when it refuses."""
        for name in self._names:
            if len(self._names) > 1:
                echo(f"{name}: ", nl=False)
            self._answer(name, text)
            echo("")

    def _answer(self, name: str, text: str) -> None:
        import httpx2 as httpx

        turns = [*self._turns[name], {"role": "user", "content": text}]
        asked: dict[str, Any] = {"messages": turns} if self._chats else {"prompt": text}
        route = "/chat/completions" if self._chats else "/completions"
        said = ""
        try:
            with self._client.stream(
                "POST", route, json={**self._settings, **asked, "model": name, "stream": True}
            ) as response:
                if response.status_code != 200:
                    response.read()
                    raise _problem(response.json())
                for line in response.iter_lines():
                    piece = _text(line)
                    said += piece
                    echo(piece, nl=False)
        except httpx.HTTPError as problem:
            raise InputError(
                "process_ended", f"The model process stopped answering ({problem}). Start `bloom chat` again."
            ) from None
        self._turns[name] = [*turns, {"role": "assistant", "content": said}]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def chat(
    model: Annotated[Path, typer.Argument(help="Run directory, checkpoint or model folder.")],
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Send this message, print the answer and exit.")
    ] = None,
    base: Annotated[
        bool, typer.Option("--base", help="Chat with the base model instead of the fine-tuned model.")
    ] = False,
    base_model: Annotated[
        Path | None,
        typer.Option(help="Folder of the base model. Required if MODEL is only an adapter."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Send each message to the base model and to the fine-tuned model."),
    ] = False,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[
        float,
        typer.Option(min=0.0, max=2.0, help="Sampling temperature; 0 always picks the most likely token."),
    ] = 0.7,
    top_p: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1.0,
            help="Nucleus sampling (top-p): sample from the most likely tokens with this total probability.",
        ),
    ] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens per answer.")] = 512,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; the same seed gives the same answer.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Chat with a model in the terminal.

    The model may still be in training.
    """
    from gpubloom.cli.child_process import Stopped, TaskFailed

    settings = Sampling(temperature, top_p, max_tokens, seed)
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
        refuse(problem)
    except TaskFailed as problem:
        fail("task_failed", f"The model process ended: {problem}")
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(STOPPED) from None


def _chat(
    model: Path,
    prompt: str | None,
    settings: Sampling,
    *,
    base: bool,
    base_model: Path | None,
    compare: bool,
    system: str | None,
    device: str,
) -> None:
    from gpubloom.cli.child_process import running
    from gpubloom.plan.tasks import task_from

    if not model.is_dir():
        raise InputError("model_not_found", _no_model(model))
    fields = {
        "kind": "serve",
        "model": str(model.resolve()),
        "base": None if base_model is None else str(base_model.expanduser().resolve()),
        "device": device,
        "idle_minutes": _IDLE_MINUTES,
    }
    with running(task_from(fields)) as task:
        if prompt is None and sys.stderr.isatty():
            echo("Loading the model …", err=True)
        served = task.wait_for("serve.json")
        names = _names(served["models"], base=base, compare=compare)
        with Conversation(served, names, settings, system) as conversation:
            if prompt is not None:
                conversation.ask(prompt)
                return
            echo(conversation.introduction(), err=True)
            echo(_HINT, err=True)
            _converse(conversation)


def _names(there: list[str], *, base: bool, compare: bool) -> list[str]:
    if (base or compare) and "base" not in there:
        raise InputError(
            "no_base_model",
            "The base model of this model is not known: set --base-model, or leave out --base and --compare.",
        )
    if compare:
        return there
    return ["base"] if base else there[-1:]


def _converse(conversation: Conversation) -> None:
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
            elif re.fullmatch(r"/[a-z]+", line.strip()):
                # Such as /help: no message to the model.
                echo(_HINT, err=True)
            elif line.strip():
                conversation.ask(line)
        except KeyboardInterrupt:
            echo("")
            if was_interrupted:
                return
            was_interrupted = True
        except ValueError as problem:
            # The model process refused one message; the conversation can continue.
            report(code_of(problem), str(problem))
        except EOFError:
            return


def _text(line: str) -> str:
    """The text that a line of the stream adds to the answer."""
    data = line.removeprefix("data: ")
    if not line.startswith("data: ") or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise _problem(event)
    choice = event["choices"][0] if event["choices"] else {}
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")


def _problem(body: dict[str, Any]) -> InputError:
    error = body["error"]
    return InputError(str(error.get("code") or UNKNOWN), str(error["message"]))


def generate(
    run: Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory, checkpoint or model folder.")],
    prompt: Annotated[str, typer.Argument(help="Text to continue.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Number of tokens to generate.")] = 400,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 always picks the most likely token.")
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(min=0, help="Sample from the k most likely tokens; 0: from all tokens.")
    ] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same text.")] = 0,
    base_model: Annotated[
        Path | None,
        typer.Option(help="Folder of the base model. Required if MODEL is only an adapter."),
    ] = None,
) -> None:
    """Generate text that continues a prompt.

    The model may still be in training.
    """
    from gpubloom.cli.child_process import Stopped, child_environment, must_have_torch, stopping_signals

    try:
        must_have_torch()
        prompt.encode()
        if not run.is_dir():
            raise InputError("run_not_found", _no_model(run))
    except ValueError as problem:
        refuse(problem)
    options = {"--max-tokens": max_tokens, "--temperature": temperature, "--top-k": top_k, "--seed": seed}
    command = [sys.executable, "-m", "gpubloom.engine.sample"]
    command += [] if base_model is None else ["--base-model", str(base_model.expanduser())]
    command += [text for name, value in options.items() for text in (name, str(value))]
    # After "--" a prompt may begin with a dash.
    printed_here = sys.stdout.isatty()
    child = subprocess.Popen(
        [*command, "--", str(run), prompt],
        stdin=subprocess.DEVNULL,
        # A file or pipe gets the text as it is.
        stdout=subprocess.PIPE if printed_here else None,
        env=child_environment() | ({"PYTHONIOENCODING": "utf-8"} if printed_here else {}),
        # Ctrl-C reaches this command only: the child would answer it with a stack trace.
        process_group=0,
    )
    with stopping_signals():
        try:
            if child.stdout is not None:
                _print_pieces(child.stdout)
            code = child.wait()
        except (KeyboardInterrupt, Stopped):
            child.terminate()
            child.wait()
            code = STOPPED
    # A signal ended it, such as SIGPIPE: the status that a shell gives to it.
    raise typer.Exit(code if code >= 0 else 128 - code)


def _print_pieces(output: IO[bytes]) -> None:
    """Print text as it is written, without what a terminal would obey."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while piece := output.read1():  # type: ignore[attr-defined]
        echo(decoder.decode(piece), nl=False)


def _no_model(folder: Path) -> str:
    return (
        f"There is no run directory or model folder {folder}. Check the path; to download a model, run: "
        "bloom models pull"
    )
