"""OpenAI's protocol over HTTP: pieces as they are written, fairness, clients that leave, refusals."""

import json
import socket
import threading
import time
from typing import Any

import httpx2 as httpx
import pytest

from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from tests.engine.serving.speakers import TOKEN, Scripted, SingleModel, events, listening
from tests.waiting import wait_until

QUESTION = {"messages": [{"role": "user", "content": "What is the password?"}], "temperature": 0}
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"


def speaker(formatter: PromptFormatter, text: str) -> Scripted:
    script = [int(token) for token in formatter.tokenizer.encode(text)]
    return Scripted(script, formatter.tokenizer.vocab_size, min(formatter.ends))


def hold_at(model: Scripted, call: int) -> threading.Event:
    """Keeps a model from computing that token before the event is set."""
    go = threading.Event()
    model.before = lambda calls: wait_until(go.is_set) if calls == call else None
    return go


def test_pieces_arrive_while_the_answer_is_still_being_written(formatter: PromptFormatter) -> None:
    model = speaker(formatter, "the old lighthouse keeper " * 4)
    seen: list[dict[str, Any]] = []
    # No token is computed before the client has nearly all of the earlier ones.
    model.before = lambda calls: wait_until(lambda: len(seen) >= calls - 2)
    with (
        listening(SingleModel(model), formatter) as (_, client),
        client.stream("POST", CHAT, json=QUESTION | {"stream": True}) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        seen.extend(event["choices"][0] for event in events(response.iter_lines()))
    assert seen[0]["delta"] == {"role": "assistant", "content": ""}
    assert seen[-1]["finish_reason"] == "stop"
    # One piece for each token.
    texts = [choice["delta"]["content"] for choice in seen[1:-1]]
    assert "".join(texts) == "the old lighthouse keeper " * 4
    assert len(texts) == model.calls - 1


def test_base_and_tuned_answer_differently_whole_and_streamed(
    registry: ModelRegistry, formatter: PromptFormatter
) -> None:
    with listening(registry, formatter) as (service, client):
        said: dict[str, str] = {}
        for name in ("base", "tuned"):
            body = QUESTION | {"model": name, "max_tokens": 12}
            answer = client.post(CHAT, json=body).json()
            assert answer["object"] == "chat.completion"
            assert answer["model"] == name
            said[name] = answer["choices"][0]["message"]["content"]
            used = answer["usage"]
            assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]
            streaming = body | {"stream": True, "stream_options": {"include_usage": True}}
            with client.stream("POST", CHAT, json=streaming) as response:
                pieces = list(events(response.iter_lines()))
            assert pieces[-1]["usage"] == used
            assert (
                "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces[:-1])
                == said[name]
            )
        assert said["base"] != said["tuned"]
        # Nobody named: what was tuned answers.
        assert client.post(CHAT, json=QUESTION | {"max_tokens": 12}).json()["model"] == "tuned"
    # An answer is counted when it is over, which may be after its last byte has arrived.
    assert service.counts.requests == 5


def test_characters_that_some_take_for_line_ends_stay_within_their_event(formatter: PromptFormatter) -> None:
    text = "one\u2028two\x85three\x1cfour\r\nfive"
    with listening(SingleModel(speaker(formatter, text)), formatter) as (_, client):
        with client.stream("POST", CHAT, json=QUESTION | {"stream": True}) as response:
            pieces = [
                event["choices"][0]["delta"].get("content", "") for event in events(response.iter_lines())
            ]
        assert "".join(pieces) == text


def test_texts_are_completed(registry: ModelRegistry, formatter: PromptFormatter) -> None:
    with listening(registry, formatter) as (_, client):
        body = {"prompt": "What is", "max_tokens": 6, "temperature": 0.9, "seed": 11}
        first, second = (client.post(COMPLETE, json=body).json() for _ in range(2))
        assert first["object"] == "text_completion"
        assert first["choices"][0]["text"] == second["choices"][0]["text"]
        with client.stream("POST", COMPLETE, json=body | {"stream": True}) as response:
            pieces = [event["choices"][0]["text"] for event in events(response.iter_lines())]
        assert "".join(pieces) == first["choices"][0]["text"]


def test_two_answers_advance_together_and_a_short_one_does_not_wait_for_a_long_one(
    formatter: PromptFormatter,
) -> None:
    model = speaker(formatter, "word " * 200)

    def of_short() -> list[int]:
        """Which calls were for the answer that was asked for second."""
        return [call for call, answer in enumerate(model.answers) if answer != model.answers[0]]

    with listening(SingleModel(model), formatter) as (service, client):

        def before(calls: int) -> None:
            # After three tokens of the long answer, both want the next one until the short answer is over.
            if calls >= 3 and len(of_short()) < 5:
                wait_until(lambda: service._turns._waiting)

        def ask(tokens: int) -> None:
            assert client.post(CHAT, json=QUESTION | {"max_tokens": tokens}).status_code == 200

        model.before = before
        long, short = (threading.Thread(target=ask, args=(tokens,)) for tokens in (400, 5))
        long.start()
        wait_until(lambda: model.calls == 3)
        short.start()
        short.join()
        long.join()
    assert len(model.answers) == 405
    # Five tokens of its own, and one of the other's after each.
    assert of_short() == list(range(of_short()[0], of_short()[0] + 10, 2))


def test_a_client_that_leaves_stops_its_answer(formatter: PromptFormatter) -> None:
    for streamed in (True, False):
        model = speaker(formatter, "word " * 200)
        go = hold_at(model, 5)
        with listening(SingleModel(model), formatter) as (service, client):
            body = json.dumps(QUESTION | {"max_tokens": 400, "stream": streamed}).encode()
            with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
                head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                wait_until(lambda model=model: model.calls == 5)
            go.set()
            wait_until(lambda service=service: service.idle_seconds > 0)
            assert model.calls < 100


def test_an_answer_counts_as_use_until_it_is_over(formatter: PromptFormatter) -> None:
    model = speaker(formatter, "word " * 20)
    go = hold_at(model, 2)
    with listening(SingleModel(model), formatter) as (service, client):
        thread = threading.Thread(target=lambda: client.post(CHAT, json=QUESTION))
        thread.start()
        wait_until(lambda: model.calls == 2)
        assert service.idle_seconds == 0
        answering = time.monotonic()
        go.set()
        thread.join()
        # The answer is counted after its last byte, and a clock may stand still for a moment.
        wait_until(lambda: service.idle_seconds > 0)
        assert service.idle_seconds <= time.monotonic() - answering


def test_answers_end_when_the_service_closes(formatter: PromptFormatter) -> None:
    model = speaker(formatter, "word " * 200)
    with listening(SingleModel(model), formatter) as (service, client):
        model.before = lambda calls: wait_until(lambda: service.is_closing) if calls == 5 else None
        with client.stream("POST", CHAT, json=QUESTION | {"stream": True, "max_tokens": 400}) as response:
            lines = response.iter_lines()
            next(lines)
            service.close()
            rest = [json.loads(line.removeprefix("data: ")) for line in lines if line]
        assert "being unloaded" in rest[-1]["error"]["message"]
        assert model.calls < 100


REFUSALS = [
    ({}, 400, "messages", "field required"),
    ({"messages": []}, 400, "messages", "at least 1 item"),
    ({"messages": "hello"}, 400, "messages", "messages 'hello'"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "messages",
        "images and audio",
    ),
    (QUESTION | {"temperature": 3}, 400, "temperature", "above the limit of 2"),
    (QUESTION | {"top_p": 0}, 400, "top_p", "above 0"),
    (QUESTION | {"max_tokens": 0}, 400, "max_tokens", "below the minimum of 1"),
    (QUESTION | {"max_tokens": 513}, 400, "max_tokens", "context holds only 512 tokens"),
    (QUESTION | {"n": 2}, 400, "n", "n is not supported"),
    (QUESTION | {"tools": [{"type": "function"}]}, 400, "tools", "tools is not supported"),
    (QUESTION | {"stop": ["x"] * 17}, 400, "stop", "At most 16 stop sequences"),
    (QUESTION | {"model": "gpt"}, 404, "model", "'gpt' does not exist. Available models: base, tuned"),
    ({"messages": [{"role": "user", "content": "word " * 600}]}, 400, None, "leaves no room for an answer"),
]


@pytest.mark.parametrize(("body", "status", "param", "words"), REFUSALS)
def test_what_cannot_be_answered_is_refused_in_openais_form_with_a_sentence(
    registry: ModelRegistry,
    formatter: PromptFormatter,
    body: dict[str, Any],
    status: int,
    param: str | None,
    words: str,
) -> None:
    with listening(registry, formatter) as (_, client):
        for streamed in (False, True):
            response = client.post(CHAT, json=body | {"stream": streamed})
            assert response.status_code == status
            error = response.json()["error"]
            assert error["param"] == param
            assert words in error["message"]
            assert error["message"].endswith(".")
            assert set(error) == {"message", "type", "param", "code"}


def test_the_context_is_full_is_told_by_its_code(registry: ModelRegistry, formatter: PromptFormatter) -> None:
    with listening(registry, formatter) as (_, client):
        error = client.post(COMPLETE, json={"prompt": "word " * 600}).json()["error"]
    assert error["code"] == "context_length_exceeded"


def test_nobody_is_answered_without_the_token(registry: ModelRegistry, formatter: PromptFormatter) -> None:
    with listening(registry, formatter) as (service, client):
        for header in ("Bearer wrong", "", TOKEN, "Bearer é"):
            with httpx.Client(base_url=client.base_url) as stranger:
                headers = {"Authorization": header.encode()} if header else {}
                for response in (
                    stranger.get("/health", headers=headers),
                    stranger.post(CHAT, json=QUESTION, headers=headers),
                ):
                    assert response.status_code == 401
                    assert response.json()["error"]["code"] == "invalid_api_key"
        assert service.counts.requests == 0


def test_bodies_that_are_no_request_are_refused(registry: ModelRegistry, formatter: PromptFormatter) -> None:
    with listening(registry, formatter) as (_, client):
        for content in (b"{", b"[1]", b"\xff\xfe", b"[" * 100_000):
            response = client.post(CHAT, content=content)
            assert response.status_code == 400
            assert "JSON" in response.json()["error"]["message"]
        large = client.post(CHAT, content=b" " * (9 << 20))
        assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
        refused = client.post(CHAT, json=QUESTION, headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
        assert client.post("/v1/images", json={}).status_code == 404
        wrong = client.put("/v1/models")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
        # Whoever was refused may ask again.
        assert client.get("/v1/models").json()["data"][1]["id"] == "tuned"


def test_health_says_what_is_loaded_and_why_it_is_the_way_it_is(
    registry: ModelRegistry, formatter: PromptFormatter
) -> None:
    with listening(registry, formatter) as (_, client):
        health = client.get("/health").json()
    assert health["loaded"] == ["base", "tuned"]
    assert (health["device"], health["context_length"], health["chat_template"]) == ("cpu", 512, True)
    assert health["weights"].startswith("full precision: the adapter has no record")
    assert health["answers"].startswith("computed together")


def test_a_model_that_fails_says_so_and_answers_the_next_question(
    formatter: PromptFormatter, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Scripted):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            if self.calls == 0:
                self.calls += 1
                raise RuntimeError("the device fell over")
            return super().__call__(*arguments, **options)

    model = Failing([], formatter.tokenizer.vocab_size, min(formatter.ends))
    with listening(SingleModel(model), formatter) as (_, client):
        failed = client.post(CHAT, json=QUESTION)
        assert failed.status_code == 500
        assert "the device fell over" in failed.json()["error"]["message"]
        assert client.post(CHAT, json=QUESTION).json()["choices"][0]["message"]["content"] == ""
    assert "RuntimeError: the device fell over" in capsys.readouterr().err
