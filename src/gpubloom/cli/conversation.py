"""A conversation with a served model over its loopback port, printed while it is written."""

import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2 as httpx
import typer


@dataclass(frozen=True)
class Settings:
    """How answers are drawn."""

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
    """Turns with one model, or with two that hear the same questions and remember their own answers."""

    def __init__(
        self, served: dict[str, Any], names: list[str], settings: Settings, system: str | None
    ) -> None:
        """`place` is the content of serve.json."""
        self._names = names
        self._settings = settings.fields(served["context_length"])
        self._chats: bool = served["chat_template"]
        if system is not None and not self._chats:
            raise ValueError("This model has no chat template, so nothing can be said to it before a text.")
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
            return f"Talking to {who}."
        return f"{who[0].upper()}{who[1:]} has no chat template: what you write is continued."

    def forget(self) -> None:
        """Begins again."""
        self._turns = {name: list(self._begin) for name in self._names}

    def ask(self, text: str) -> None:
        """Prints the answers; ValueError with the sentence of the server when it refuses."""
        for name in self._names:
            if len(self._names) > 1:
                typer.echo(f"{name}: ", nl=False)
            self._answer(name, text)
            typer.echo("")

    def _answer(self, name: str, text: str) -> None:
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
                    raise ValueError(_sentence(response.json()))
                for line in response.iter_lines():
                    piece = _text(line)
                    said += piece
                    typer.echo(piece, nl=False)
        except httpx.HTTPError as problem:
            raise ValueError(f"The model's process does not answer any more ({problem}).") from None
        self._turns[name] = [*turns, {"role": "assistant", "content": said}]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def _text(line: str) -> str:
    """What a line of the stream adds to the answer."""
    data = line.removeprefix("data: ")
    if not line.startswith("data: ") or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise ValueError(_sentence(event))
    choice = event["choices"][0] if event["choices"] else {}
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")


def _sentence(body: dict[str, Any]) -> str:
    return str(body["error"]["message"])
