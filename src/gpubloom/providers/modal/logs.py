"""What a sandbox printed, read piece by piece.

Modal gives lines by the time they were printed. A cursor is the moment of the last line that was read and how
many lines were read of that moment, so that none is missed or read twice.
"""

from datetime import UTC, datetime, timedelta

from gpubloom.providers.cloud import LogChunk
from gpubloom.providers.modal.connection import ModalConnection, raised_by_calls

# One call brings little more than this; the next one goes on.
_MOST_CHARACTERS = 1_000_000
# Longer than a sandbox lives.
_FROM_THE_START = timedelta(days=2)


async def read_logs(connection: ModalConnection, sandbox_id: str, cursor: str) -> LogChunk:
    import modal

    client = await connection.client()
    sandbox = await connection.ask("find a sandbox's output", modal.Sandbox.from_id.aio(sandbox_id, client))
    seen, seen_then = _read_cursor(cursor)

    async def fetch() -> LogChunk:
        texts: list[str] = []
        last, count, skip, characters = seen, seen_then, seen_then, 0
        async for entry in sandbox.logs.fetch.aio(since=seen or datetime.now(UTC) - _FROM_THE_START):
            if entry.timestamp == seen and skip:
                skip -= 1
                continue
            count = count + 1 if entry.timestamp == last else 1
            last = entry.timestamp
            texts.append(entry.message)
            characters += len(entry.message)
            if characters > _MOST_CHARACTERS:
                break
        return LogChunk("".join(texts), "" if last is None else f"{last.isoformat()}/{count}")

    try:
        return await connection.within(connection.limits.answer, fetch())
    except modal.exception.ExecutionError:
        # Nothing runs yet, so nothing has been printed.
        return LogChunk("", cursor)
    except raised_by_calls() as problem:
        raise connection.fault(problem, "give a sandbox's output") from None


def _read_cursor(cursor: str) -> tuple[datetime | None, int]:
    moment, _, count = cursor.partition("/")
    return (datetime.fromisoformat(moment), int(count)) if cursor else (None, 0)
