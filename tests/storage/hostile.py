"""A hostile agent: batches that no agent of ours sends, and a home whose run directory is full of links.

Everything is generated from one `random.Random`, so that a seed tells all.
"""

import hashlib
import json
import os
import random
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.sync.upload_batch import UploadBatch

JOB = "job-1"
EVIL = b"evil!"
SECRET = "the server's own secret"
KINDS = ("whole", "grow", "rename", "part", "done", "abandon", "folder", "remove")
# What the server owns in the directory of the hostile job itself.
SERVER_FILES = (
    "train.py", "task.py", "config.json", "plan.json", "task.json", "requirements.txt", "brought.json",
    "traincard/control.json", "traincard/lock", "agent/job.json", "agent/agent.json",
    "inputs/train/words.txt",
)  # fmt: skip
_PARTS = (
    "work", "model", "checkpoints", "logs", "traincard", "agent", "inputs", "link", "file", "hard", "pipe",
    "socket", "step-1", "..", ".", "", "secret.key", "bloom.db", "runs", "job-2", "train.py", ".arriving",
    "exit-1.json", "output.log", "link.log", "events.jsonl", "a\\b", "new", "deep/er", "-rf", "~", "a b", "ü",
    "nul\0", "line\nbreak", "\udcff", "x" * 300, "٣", "CON", "segments", "latest.json", "control.json",
)  # fmt: skip
_WHOLE_NAMES = (
    "", "/", "/etc/passwd", "../../secret.key", "work/../../../secret.key", "work/link/secret.key",
    "work/link/runs/job-2/train.py", "work/file", "work/hard.log", "work/pipe", "work/socket", "model",
    "model/link/bloom.db", "checkpoints/link", "logs/link.log", "traincard/segments/a1.r0.s1.jsonl",
    "traincard/latest.json", "traincard/events.jsonl", "traincard/events.rank٣.jsonl", "work//file",
    "./model/file", "model/./file", "model/file/", "WORK/file", "agent", "agent/exit-1.json", "a/" * 40 + "a",
    ".arriving/received-1.json", ".arriving/x/secret.key", "work/" + "y" * 255, *SERVER_FILES,
)  # fmt: skip
_ACCEPTED_NAMES = (
    "work/link", "work/link/secret.key", "work/link/new", "work/link/runs/job-2/train.py", "work/file",
    "work/hard.log", "work/pipe", "work/socket", "work/new/file", "model/link", "model/link/bloom.db",
    "model/config.json", "model/new", "checkpoints/link", "checkpoints/link/train.py", "checkpoints/step-1",
    "checkpoints/step-1/weights", "checkpoints/step-2/weights", "logs/link.log", "logs/output.log",
    "traincard/segments/a1.r0.s1.jsonl", "traincard/segments/events.jsonl", "traincard/events.jsonl",
    "traincard/latest.json", "traincard/events.rank1.jsonl",
)  # fmt: skip
_NUMBERS: tuple[Any, ...] = (
    0, 1, 5, 4096, -1, -(10**30), 10**18, 1 << 62, 1 << 64, 10**400, 1.5, float("inf"), float("nan"), True,
    None, "5", [], {}, "a" * 70,
)  # fmt: skip


class MemoryStore:
    """A bucket in memory, with the methods of `Store` that a receiver calls."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.objects[name] = content

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        found = self.objects.get(name)
        return None if found is None or (most is not None and len(found) > most) else found

    def sizes(self, folder: str) -> dict[str, int]:
        return {name: len(found) for name, found in self.objects.items() if name.startswith(f"{folder}/")}

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(name, None)

    def addresses(
        self, method: Literal["GET", "PUT"], names: Sequence[str], life_seconds: float
    ) -> list[str]:
        return [f"https://bucket/{name}" for name in names]


def server_text(name: str) -> str:
    return json.dumps({"version": 1, "name": name})


def make_home(home: Path) -> Path:
    """A home with a secret and the run of somebody else; returns the run directory of the hostile job."""
    other = home / "runs/job-2"
    for name in (
        "traincard/events.jsonl",
        "logs/output.log",
        "model/config.json",
        "train.py",
        "agent/job.json",
    ):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(f"{name} of somebody else\n")
    for name in ("secret.key", "bloom.db"):
        (home / name).write_text(SECRET)
    own = home / "runs" / JOB
    for name in SERVER_FILES:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(server_text(name))
    plant_links(home)
    return own


def plant_links(home: Path) -> None:
    """What a script that ran on this machine could have left, in every folder that a sender may name."""
    own, other = home / "runs" / JOB, home / "runs/job-2"
    for name in ("work", "model", "checkpoints", "logs", "traincard", ".arriving"):
        if (own / name).is_symlink() or not (own / name).is_dir():
            (own / name).unlink(missing_ok=True)
            (own / name).mkdir()
    for name, target in (
        ("work/link", home),
        ("work/file", home / "secret.key"),
        ("model/link", home),
        ("checkpoints/link", other),
        ("logs/link.log", home / "bloom.db"),
        ("logs/output.log", home / "secret.key"),
        ("traincard/segments", other / "traincard"),
        ("traincard/latest.json", home / "secret.key"),
        (".arriving/work", home),
        (".arriving/model", other / "model"),
        (".arriving/received-7.json", home / "bloom.db"),
    ):
        if not (own / name).is_symlink() and not (own / name).exists():
            (own / name).symlink_to(target)
    for name, original in (
        ("work/hard.log", other / "logs/output.log"),
        ("traincard/events.jsonl", other / "traincard/events.jsonl"),
    ):
        if not (own / name).exists():
            os.link(original, own / name)
    if not (own / "work/pipe").exists():
        os.mkfifo(own / "work/pipe")
    if not (own / "work/socket").exists():
        here = os.open(own / "work", os.O_RDONLY)
        try:
            # By its folder: the path of a socket must be short.
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)


def everything_else(home: Path) -> dict[str, tuple[Any, ...]]:
    """Byte for byte all of the home but what the hostile job may write: its own results."""
    own = f"runs/{JOB}"
    kept = {f"{own}/{name}" for name in SERVER_FILES} | {f"{own}/agent", f"{own}/inputs"}
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, names in os.walk(home):
        for name in [*folders, *names]:
            path = Path(folder, name)
            inside = path.relative_to(home).as_posix()
            if inside.startswith(f"{own}/") and inside not in kept:
                continue
            facts = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
            target = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else ""
            # The folder of the job itself changes; links to others' files may go away.
            found[inside] = (facts.st_mode, content, target, () if inside == own else facts.st_size)
    return found


class HostileAgent:
    """Makes the bytes of one batch after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def batch(self, attempt: int, number: int) -> bytes:
        odd = [self._entries] * 3 + [self._header, self._bytes, self._exit]
        make = self.chance.choice([self._well_formed] * 6 + odd)
        return make(attempt, number)

    def entry(self) -> Any:
        chance = self.chance
        if chance.random() < 0.03:
            return chance.choice(_NUMBERS)
        kind = (
            chance.choice(KINDS) if chance.random() < 0.95 else chance.choice(("chmod", "link", 7, None, []))
        )
        entry: dict[str, Any] = {"kind": kind, "path": self.name()}
        if kind == "rename" or chance.random() < 0.05:
            entry["to"] = self.name()
        if kind in ("whole", "grow", "part"):
            entry["size"] = len(EVIL) if chance.random() < 0.9 else self.number()
        if kind in ("grow", "part"):
            entry["offset"] = 0 if chance.random() < 0.7 else self.number()
        if kind == "grow" and chance.random() < 0.4:
            entry["fresh"] = chance.choice((True, "yes", 1))
        if kind == "done":
            entry["total"] = len(EVIL) if chance.random() < 0.7 else self.number()
            entry["sha256"] = hashlib.sha256(EVIL).hexdigest() if chance.random() < 0.8 else self.number()
        return entry

    def name(self) -> Any:
        chance = self.chance
        match chance.randrange(10):
            case 0:
                return chance.choice(_NUMBERS)
            case 1 | 2 | 3 | 4:
                return chance.choice(_WHOLE_NAMES)
            case _:
                top = chance.choice(
                    ("work", "model", "checkpoints", "logs", "traincard", chance.choice(_PARTS))
                )
                return "/".join([top, *(chance.choice(_PARTS) for _ in range(chance.randint(0, 4)))])

    def number(self) -> Any:
        return self.chance.choice(_NUMBERS)

    def _well_formed(self, attempt: int, number: int) -> bytes:
        """What an agent could send, with names that a list accepts and that lead through links."""
        chance = self.chance
        entries = []
        for _ in range(chance.randint(1, 3)):
            path = chance.choice(_ACCEPTED_NAMES)
            top = path.partition("/")[0]
            siblings = [name for name in _ACCEPTED_NAMES if name.startswith(f"{top}/")]
            entry: dict[str, Any] = {
                "kind": chance.choice(KINDS),
                "path": path,
                "to": chance.choice(siblings),
            }
            entry |= {"size": len(EVIL), "offset": 0, "total": len(EVIL)}
            entry |= {"sha256": hashlib.sha256(EVIL).hexdigest(), "fresh": chance.random() < 0.3}
            if entry["kind"] == "folder":
                entry["path"] = chance.choice(
                    ("checkpoints/link", "checkpoints/step-1", "checkpoints/step-2")
                )
            if entry["kind"] == "done":
                entries.append({**entry, "kind": "part"})
            entries.append(entry)
        body = EVIL * sum(entry["kind"] in ("whole", "grow", "part") for entry in entries)
        return UploadBatch(JOB, attempt, number, 10.0, entries, body).to_bytes()

    def _entries(self, attempt: int, number: int) -> bytes:
        entries = [self.entry() for _ in range(self.chance.choice((1, 1, 2, 5, 20)))]
        body = b"".join(
            EVIL for entry in entries if isinstance(entry, dict) and entry.get("size") == len(EVIL)
        )
        return UploadBatch(JOB, attempt, number, 10.0, entries, body).to_bytes()

    def _header(self, attempt: int, number: int) -> bytes:
        """A field of the header that is of another kind, with a hash that is right."""
        header: dict[str, Any] = {
            "v": 1, "job": JOB, "attempt": attempt, "number": number, "next_in": 10.0, "ended": False,
            "sha256": hashlib.sha256(b"").hexdigest(), "entries": [], "tree": {},
        }  # fmt: skip
        name = self.chance.choice([*header, "tree", "entries", "next_in"])
        odd = [*_NUMBERS, [[]], {"a": 1}, {"work/link/secret.key": [1]}, {"../x": [1, "a"]}, [None] * 30_000]
        header[name] = self.chance.choice(odd)
        header["ended"] = header["ended"] or self.chance.random() < 0.3
        return signed(json.dumps(header).encode())

    def _exit(self, attempt: int, number: int) -> bytes:
        record: Any = {
            "v": 1, "attempt": attempt, "code": 0, "signal": None, "reason": "ended", "started_at": 1.0,
            "ended_at": 2.0, "output_dropped_bytes": 0, "problem": None,
        }  # fmt: skip
        record[self.chance.choice(list(record)[1:])] = self.chance.choice([*_NUMBERS, "\0", "hacked"])
        if self.chance.random() < 0.2:
            record = self.number()
        return exit_batch(attempt, number, json.dumps(record).encode())

    def _bytes(self, attempt: int, number: int) -> bytes:
        chance = self.chance
        whole = UploadBatch(JOB, attempt, number, 10.0, [self.entry()], EVIL).to_bytes()
        match chance.randrange(6):
            case 0:
                return whole[: chance.randrange(len(whole))]
            case 1:
                at = chance.randrange(len(whole))
                return whole[:at] + chance.randbytes(4) + whole[at:]
            case 2:
                return signed(b"[" * 100_000)
            case 3:
                return signed(b'{"entries":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
            case 4:
                return chance.randbytes(chance.randrange(2_000))
            case _:
                return UploadBatch("job-2", attempt, number, 10.0, [self.entry()], EVIL).to_bytes()


def signed(header: bytes, body: bytes = b"") -> bytes:
    return hashlib.sha256(header).hexdigest().encode() + b" " + header + b"\n" + body


def exit_batch(attempt: int, number: int, content: bytes, job: str = JOB) -> bytes:
    """The last batch of an attempt, with an exit record of this content."""
    entry = {"kind": "whole", "path": f"agent/exit-{attempt}.json", "size": len(content)}
    return UploadBatch(job, attempt, number, 10.0, [entry], content, ended=True).to_bytes()


def slot(attempt: int, number: int) -> str:
    return JobLayout(JOB, attempt).slot(number)
