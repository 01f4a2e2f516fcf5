"""Ask a model for questions about passages, until all are asked, the limit is reached or somebody stops it.

Each answer is appended to `answers.jsonl` with the number of its passage when it has come. A worker that is
killed, a stop and a failing endpoint lose nothing: whoever continues asks about the other passages only. The
dataset is written from that file at the end. The key is read from the owner's secrets here and is in no file.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import select

from gpubloom.datasets.documents.questions import parse, prompt, request_tokens
from gpubloom.server.accounts.tables import User
from gpubloom.server.datasets.files import dataset_file, dataset_folder, rejected_file
from gpubloom.server.datasets.service import failed
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.secrets.service import SecretUnavailable, open_own
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import room_left
from gpubloom.traincard.retry import RetryPolicy, retry_async
from gpubloom.worker.model_clients import (
    EndpointFailed,
    EndpointUnavailable,
    ModelClient,
    PassageRefused,
    PlaygroundClient,
    RemoteClient,
    Reply,
)

_RETRIES = RetryPolicy(first_pause=1.0, longest_pause=30.0, max_calls=6, max_seconds=300.0)
# After this many refusals in a row, the endpoint is at fault, not the passages.
_MOST_REFUSALS = 3
_LONGEST_PAUSE = 60.0

# Why asking must stop, for a dataset of this many bytes; None: continue.
WhyStop = Callable[[int], Awaitable[str | None]]


async def generate_questions(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """Write the pairs. Returns the new columns of the row: a file to inspect, or the problem."""
    assert dataset.questions is not None
    order = dict(dataset.questions)
    folder = dataset_folder(settings, dataset.id)
    try:
        passages = await asyncio.to_thread(_passages, settings, folder, order)
    except FileNotFoundError:
        return failed("The dataset with the passages was deleted. Order the questions again from another.")

    async def why_stop(size: int) -> str | None:
        async with database.read() as session:
            if await session.scalar(select(User.disabled).where(User.id == dataset.user_id)):
                return "The account is disabled. Continue when an admin has enabled it again."
            stored = await session.scalar(select(Dataset.size).where(Dataset.id == dataset.id))
            if size > await room_left(session, settings, dataset.user_id) + (stored or 0):
                return "Your storage is full. Delete a dataset, a model or a job, then continue."
        return None

    asking = await asyncio.to_thread(_Asking, order, passages, folder / "answers.jsonl", why_stop, seen)
    if order.get("stopping"):
        asking.end_reason = "Stopped on request."
    else:
        try:
            async with _connected(database, settings, dataset, order) as client:
                await asking.run(client)
        except SecretUnavailable as problem:
            asking.end_reason = str(problem)
    return await asyncio.to_thread(asking.finish, settings, dataset)


class _Lines:
    """The lines of a file of JSON, read one by one: all of them may be larger than the memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: list[int] = []
        self.bytes = 0
        with path.open("rb") as file:
            for line in file:
                self._offsets.append(self.bytes)
                self.bytes += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return _line_at(self._path, self._offsets[index])


def _line_at(path: Path, offset: int) -> dict[str, Any]:
    with path.open("rb") as file:
        file.seek(offset)
        found: dict[str, Any] = json.loads(file.readline())
        return found


def _passages(settings: Settings, folder: Path, order: dict[str, Any]) -> _Lines:
    """The passages to ask about, spread evenly. Copied at the first try: their dataset may change or go."""
    kept = folder / "passages.jsonl"
    if not kept.exists():
        source = dataset_folder(settings, UUID(order["dataset_id"])) / "data.jsonl"
        with source.open(encoding="utf-8") as file:
            total = sum(1 for _ in file)
            chosen = {number * total // order["passages"] for number in range(order["passages"])}
            file.seek(0)
            partial = kept.with_name(".passages.partial")
            with partial.open("w", encoding="utf-8") as out:
                out.writelines(line for number, line in enumerate(file) if number in chosen)
        partial.replace(kept)
    return _Lines(kept)


@asynccontextmanager
async def _connected(
    database: Database, settings: Settings, dataset: Dataset, order: dict[str, Any]
) -> AsyncIterator[ModelClient]:
    if order["playground"] is not None:
        playground = order["playground"]
        async with PlaygroundClient(
            database, settings, UUID(playground["job_id"]), playground["which"]
        ) as local:
            yield local
        return
    key = None
    if order["secret"] is not None:
        async with database.read() as session:
            key = await open_own(session, settings, dataset.user_id, order["secret"])
    async with RemoteClient(order["endpoint"], order["model"], key) as remote:
        yield remote


@dataclass(frozen=True, slots=True)
class _Answer:
    """Where an answer lies in its file, and what it counts for."""

    offset: int
    pairs: int
    rejected: int
    tokens: int


class _Asking:
    def __init__(
        self, order: dict[str, Any], passages: _Lines, answers: Path, why_stop: WhyStop, seen: dict[str, Any]
    ) -> None:
        self._order = order
        self._passages = passages
        self._path = answers
        self._why_stop = why_stop
        self._seen = seen
        self._answers: dict[int, _Answer] = {}
        # Of all answers; `_bytes` with what they add to the dataset.
        self._pairs = self._rejected = self._tokens = 0
        self._bytes = passages.bytes
        self._reserved = 0
        self._refusals = 0
        self.end_reason: str | None = None
        for offset, answer in _read_answers(answers):
            self._count(offset, answer)
        self._tell()

    async def run(self, client: ModelClient) -> None:
        pending = iter([index for index in range(len(self._passages)) if index not in self._answers])
        async with asyncio.TaskGroup() as group:
            for _ in range(client.at_once):
                group.create_task(self._work(client, pending))

    async def _work(self, client: ModelClient, pending: Iterator[int]) -> None:
        for index in pending:
            passage = self._passages[index]
            most = request_tokens(len(passage["text"])) + self._order["max_answer_tokens"]
            if self._tokens + self._reserved + most > self._order["most_tokens"]:
                limit = f"{self._order['most_tokens']:,}"
                self.end_reason = f"The limit of {limit} tokens is reached. Continue with a higher limit."
            if self.end_reason is not None:
                return
            self._reserved += most
            try:
                await self._ask(client, index, passage)
            except EndpointFailed as problem:
                self.end_reason = str(problem)
            finally:
                self._reserved -= most

    async def _ask(self, client: ModelClient, index: int, passage: dict[str, Any]) -> None:
        messages = prompt(passage["text"], self._order["pairs"], passage["source"]["heading"])
        tokens = self._order["max_answer_tokens"]

        async def ask() -> Reply:
            # Before every request: each may cost money, and may be tried again for minutes.
            if (reason := await self._why_stop(self._bytes)) is not None:
                raise EndpointFailed(reason)
            return await client.ask(messages, tokens)

        async def paused(problem: Exception, pause: float) -> None:
            asked = problem.retry_after if isinstance(problem, EndpointUnavailable) else 0.0
            await asyncio.sleep(min(_LONGEST_PAUSE, max(pause, asked)))

        try:
            reply = await retry_async(
                ask,
                _RETRIES,
                is_transient=lambda problem: isinstance(problem, EndpointUnavailable),
                wait=paused,
            )
        except EndpointUnavailable as problem:
            raise EndpointFailed(f"{problem} Continue when it answers again.") from problem
        except PassageRefused as problem:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                raise EndpointFailed(str(problem)) from problem
            self._keep(index, [], [{"reason": str(problem), "text": ""}], 0)
            return
        self._refusals = 0
        self._keep_reply(index, reply, len(passage["text"]))

    def _keep_reply(self, index: int, reply: Reply, characters: int) -> None:
        pairs, rejected = parse(reply.text, self._order["pairs"])
        refused = [{"reason": one.reason, "text": one.text} for one in rejected]
        if reply.is_cut and not pairs:
            refused = [
                {"reason": "The answer was cut off. Allow more tokens per answer.", "text": reply.text[:300]}
            ]
        kept = [{"question": pair.question, "answer": pair.answer} for pair in pairs]
        used = reply.tokens
        if used is None:
            # An endpoint that does not count is taken to use all that it may.
            used = request_tokens(characters) + self._order["max_answer_tokens"]
        self._keep(index, kept, refused, used)

    def _keep(
        self, index: int, pairs: list[dict[str, str]], rejected: list[dict[str, str]], tokens: int
    ) -> None:
        answer = {"index": index, "pairs": pairs, "rejected": rejected, "tokens": tokens}
        with self._path.open("ab") as file:
            offset = file.tell()
            file.write(json.dumps(answer).encode() + b"\n")
        self._count(offset, answer)
        self._tell()

    def _count(self, offset: int, answer: dict[str, Any]) -> None:
        found = _Answer(offset, len(answer["pairs"]), len(answer["rejected"]), answer["tokens"])
        self._answers[answer["index"]] = found
        self._pairs += found.pairs
        self._rejected += found.rejected
        self._tokens += found.tokens
        rows = (*self._rows_of(answer), *self._rejected_of(answer))
        self._bytes += sum(len(json.dumps(row)) + 1 for row in (answer, *rows))

    def _tell(self) -> None:
        self._seen["progress"] = len(self._answers) / max(1, len(self._passages))
        self._seen["questions"] = self._summary()
        # Counts against the quota while it grows.
        self._seen["size"] = self._bytes

    def _summary(self) -> dict[str, Any]:
        return {
            **self._order,
            "passages": len(self._passages),
            "passages_done": len(self._answers),
            "pairs_kept": self._pairs,
            "rejected": self._rejected,
            "tokens": self._tokens,
            "end_reason": self.end_reason,
        }

    def finish(self, settings: Settings, dataset: Dataset) -> dict[str, Any]:
        """Write the dataset from the answers."""
        summary = self._summary() | {"stopping": False}
        data, rejected = dataset_file(settings, dataset), rejected_file(settings, dataset.id)
        _write(rejected, self._rejected_rows())
        if not summary["pairs_kept"]:
            first = next(self._rejected_rows(), None)
            why = self.end_reason or (first["reason"] if first else "")
            return failed(f"The model wrote no usable pair. {why}".strip()) | {"questions": summary}
        _write(data, self._rows())
        data.with_name(f"{data.name}.rows").unlink(missing_ok=True)
        size = sum(path.stat().st_size for path in data.parent.iterdir() if path.is_file())
        return {
            "status": "inspecting",
            "questions": summary,
            "size": size,
            "received": size,
            "progress": None,
            "problem": None,
            "attempt": 0,
        }

    def _in_order(self) -> Iterator[dict[str, Any]]:
        for _, answer in sorted(self._answers.items()):
            yield _line_at(self._path, answer.offset)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for answer in self._in_order():
            yield from self._rows_of(answer)

    def _rejected_rows(self) -> Iterator[dict[str, Any]]:
        for answer in self._in_order():
            yield from self._rejected_of(answer)

    def _rows_of(self, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        source = self._source(answer["index"]) if answer["pairs"] else None
        for pair in answer["pairs"]:
            messages = [
                {"role": "user", "content": pair["question"]},
                {"role": "assistant", "content": pair["answer"]},
            ]
            yield {"messages": messages, "source": source}

    def _rejected_of(self, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        source = self._source(answer["index"]) if answer["rejected"] else None
        for one in answer["rejected"]:
            yield {"source": source, **one}

    def _source(self, index: int) -> dict[str, Any]:
        passage = self._passages[index]
        return {**passage["source"], "text": passage["text"]}


def _read_answers(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines, and where they begin: the last one may have been cut by a crash, and is asked again."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    offset = 0
    with file:
        for line in file:
            if not line.endswith(b"\n"):
                os.truncate(path, offset)
                return
            yield offset, json.loads(line)
            offset += len(line)


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
    partial.replace(path)
