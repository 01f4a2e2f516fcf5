"""RankEnv: the rank of this process in its run, from the environment that torchrun or our launcher sets."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpubloom.errors import InputError

# Of a process that should be started again, with the others, from the newest checkpoint.
LOST = 75
_PARENT_DEATH_SIGNAL = 1


@dataclass(frozen=True)
class RankEnv:
    """`rank` of `size` processes, `local_rank` of `local_size` on this machine; they meet at host and port.

    `restarts`: how often they were started again. `restarts_left`: whether they will be once more.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = ""
    port: int = 0
    # torchrun keeps the meeting point itself.
    host_is_there: bool = False
    restarts: int = 0
    restarts_left: int = 0

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "RankEnv":
        """ValueError in a sentence where the variables contradict each other."""
        size = _number(environment, "WORLD_SIZE", 1, at_least=1)
        restarts = _number(environment, "TORCHELASTIC_RESTART_COUNT", 0)
        left = _number(environment, "TORCHELASTIC_MAX_RESTARTS", restarts) - restarts
        if size == 1:
            return cls(restarts=restarts, restarts_left=left)
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
        if missing:
            raise InputError(
                "invalid_rank_env",
                f"WORLD_SIZE is {size}, but {' and '.join(missing)} {_are(missing)} not set: "
                "start the processes with torchrun or with --processes.",
            )
        rank = _number(environment, "RANK", 0)
        if rank >= size:
            raise InputError(
                "invalid_rank_env",
                f"RANK is {rank}, but WORLD_SIZE is {size}: ranks go from 0 to {size - 1}.",
            )
        local_size = _number(environment, "LOCAL_WORLD_SIZE", size, at_least=1)
        if local_size > size:
            raise InputError(
                "invalid_rank_env",
                f"LOCAL_WORLD_SIZE is {local_size}, but WORLD_SIZE is {size}: one machine cannot have more "
                "processes than the whole run.",
            )
        local_rank = _number(environment, "LOCAL_RANK", rank if local_size == size else 0)
        if local_rank >= local_size:
            raise InputError(
                "invalid_rank_env",
                f"LOCAL_RANK is {local_rank}, but LOCAL_WORLD_SIZE is {local_size}: "
                f"local ranks go from 0 to {local_size - 1}.",
            )
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            host=environment["MASTER_ADDR"],
            port=_number(environment, "MASTER_PORT", 0, at_least=1),
            host_is_there=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            restarts=restarts,
            restarts_left=max(0, left),
        )

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def write_exit_message(sentence: str, environment: Mapping[str, str]) -> None:
    """For whoever started this process, in the file and the form that torchrun reads."""
    if not (file := environment.get("TORCHELASTIC_ERROR_FILE")):
        return
    words = {"message": sentence, "extraInfo": {"timestamp": str(int(time.time()))}}
    with contextlib.suppress(OSError):
        Path(file).write_text(json.dumps({"message": words}), encoding="utf-8")


def read_exit_message(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["message"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def end_with(parent: int) -> None:
    """From now on this process is killed when its parent is gone: nobody would lead it, or end it."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(LOST)


def _number(environment: Mapping[str, str], name: str, default: int, *, at_least: int = 0) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < at_least:
        raise InputError(
            "invalid_rank_env", f"{name} is {text!r}, not a whole number of at least {at_least}."
        )
    return int(text)


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
