"""Degraded: a rank died, failed, or broke its promise to say something; which one, and since when."""

from collections.abc import Iterator

from gpubloom.traincard.diagnosis.finding import Finding, Limits, clock_time, duration
from gpubloom.traincard.ranks import RankReading
from gpubloom.traincard.reading import Reading


def degraded(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """One finding for each rank of the running attempt that is missing."""
    for rank in (reading.ranks[number] for number in sorted(reading.ranks)):
        # One that only took part in an earlier attempt is not missed.
        if rank.attempt != reading.state.attempt and 0 in reading.ranks:
            continue
        life = rank.life(now)
        evidence = {
            "rank": rank.rank,
            "host": rank.host,
            "pid": rank.pid,
            "state": life,
            "last_seen": rank.last_seen,
            "step": rank.step,
        }
        if life == "ended" and rank.rank > 0 and rank.status in {"failed", "preempted", "interrupted"}:
            yield Finding(
                "degraded", "critical", _ended(rank), {**evidence, "status": rank.status}, rank.last_seen
            )
        elif life == "dead":
            sentence = (
                f"{_who(rank, reading)} is dead: its process is gone without a word. "
                f"Last sign of life: {clock_time(rank.last_seen)}{_at_step(rank)}."
            )
            yield Finding("degraded", "critical", sentence, evidence, rank.last_seen)
        elif life == "silent":
            quiet = now - rank.seen_at
            promised = max(rank.own_promise, rank.promise or 0.0)
            sentence = (
                f"{_who(rank, reading)} has been silent for {duration(quiet)}; it promised a sign of life "
                f"within {duration(promised)}. Last one: {clock_time(rank.last_seen)}{_at_step(rank)}."
            )
            more = {"silent_seconds": round(quiet, 1), "promised_seconds": promised}
            yield Finding("degraded", "critical", sentence, {**evidence, **more}, rank.last_seen)


def _who(rank: RankReading, reading: Reading) -> str:
    if rank.rank == 0 and reading.state.world_size == 1:
        return "The training process"
    return f"Rank {rank.rank}" + (f" on {rank.host}" if rank.host else "")


def _at_step(rank: RankReading) -> str:
    return "" if rank.step is None else f", at step {rank.step:,}"


def _ended(rank: RankReading) -> str:
    who = f"Rank {rank.rank}" + (f" on {rank.host}" if rank.host else "")
    sentence = f"{who} {_ENDINGS[rank.status or '']} at {clock_time(rank.last_seen)}{_at_step(rank)}"
    if rank.error is None:
        return f"{sentence}."
    message = str(rank.error.get("message", "")).strip().partition("\n")[0][:200]
    return f"{sentence}: {rank.error.get('type')}" + (f": {message}" if message else "")


_ENDINGS = {"failed": "failed", "preempted": "was told to stop", "interrupted": "was interrupted"}
