"""What a run is told: control.json.

It holds the desired state, not a queue of commands, with a version that grows by one. `ControlFile` changes
it (server, command line); `Control` looks at it between two steps (trainer), for the price of one `stat`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import read_json_object
from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles
from gpubloom.traincard.number_encoding import plain, to_json
from gpubloom.traincard.safe_paths import look_beneath, open_beneath, read_json_beneath, replace_beneath
from gpubloom.traincard.sync.files import CONTROL

try:
    import fcntl
except ImportError:  # a system without flock: one writer at a time, as the protocol says
    fcntl = None  # type: ignore[assignment]

Want = Literal["run", "pause", "cancel"]


@dataclass(frozen=True)
class Command:
    """The desired state at one version. `save_now`: a checkpoint was asked for since the last look."""

    version: int
    want: Want = "run"
    set: Mapping[str, Any] = field(default_factory=dict)
    save: int = 0
    save_now: bool = False


class ControlFile:
    """Changes what a run is told. Safe with any number of writers on one machine."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._files = RunFiles(run_dir)

    def read(self) -> Command:
        """The desired state now; version 0 before the first command. ValueError: damaged file."""
        return _parse(read_json_beneath(self._files.run_dir, CONTROL))

    def want(self, state: Want) -> Command:
        """Tell the run to run, to pause (save and stop), or to cancel."""
        if state not in get_args(Want):
            raise InputError(
                "invalid_control",
                f"unknown command {state!r}; the known commands are {', '.join(get_args(Want))}",
            )
        return self._change(want=state)

    def set(self, settings: Mapping[str, Any]) -> Command:
        """Change settings while the run trains, such as {"learning_rate": 1e-4}."""
        return self._change(settings=settings)

    def save(self) -> Command:
        """Ask for a checkpoint at the next step."""
        return self._change(saves=1)

    def _change(
        self, want: Want | None = None, settings: Mapping[str, Any] | None = None, saves: int = 0
    ) -> Command:
        with self._alone():
            before = self.read()
            after = Command(
                version=before.version + 1,
                want=want or before.want,
                set={**before.set, **plain(settings or {})},
                save=before.save + saves,
            )
            content = {
                "v": PROTOCOL_VERSION,
                "version": after.version,
                "want": after.want,
                "set": after.set,
                "save": after.save,
            }
            # Readers look at the file's time first. Clocks tick coarsely and inode numbers come back, so
            # two quick changes could look alike; a time that always grows cannot.
            now = time.time_ns()
            there = look_beneath(self._files.run_dir, CONTROL)
            modified = now if there is None else max(now, there.st_mtime_ns + 1)
            replace_beneath(
                self._files.run_dir, CONTROL, to_json(content), durable=True, modified_ns=modified
            )
        return after

    @contextmanager
    def _alone(self) -> Iterator[None]:
        run_dir = self._files.run_dir
        run_dir.mkdir(parents=True, exist_ok=True)
        # A run may have put a link in the place of a file or a folder, to have somebody else's file written.
        name = self._files.control_lock.relative_to(run_dir).as_posix()
        lock = open_beneath(run_dir, name, os.O_RDWR | os.O_CREAT, make=True)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class Control:
    """The trainer's view of control.json. Reads only; `poll` costs one `stat` while nothing changes."""

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        complain: Callable[[str], None] = lambda sentence: None,
        listening: Callable[[], None] | None = None,
    ) -> None:
        """`listening` is called at the first `poll`: from then on a viewer may offer commands."""
        self._complain = complain
        self._listening = listening
        self._path = RunFiles(run_dir).control
        self._seen: tuple[int, int, int] | None = None
        self._version = 0
        self.problem: str | None = None
        # Saves asked for before this attempt began were meant for another one.
        try:
            self._saves = _parse(read_json_object(self._path)).save
        except (OSError, ValueError):
            self._saves = 0

    def poll(self) -> Command | None:
        """The desired state if it changed since the last look, else None. Never raises: see `problem`."""
        if (listening := self._listening) is not None:
            self._listening = None
            listening()
        try:
            found = self._path.stat()
            mark = (found.st_mtime_ns, found.st_ino, found.st_size)
            if mark == self._seen:
                return None
            command = _parse(read_json_object(self._path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            sentence = f"control.json cannot be read and is ignored: {problem}"
            if sentence != self.problem:
                self.problem = sentence
                self._complain(sentence)
            return None
        self._seen = mark
        self.problem = None
        if command.version <= self._version:
            return None
        save_now = command.save > self._saves
        self._version, self._saves = command.version, command.save
        return Command(command.version, command.want, command.set, command.save, save_now)


def _parse(content: dict[str, Any] | None) -> Command:
    if content is None:
        return Command(version=0)
    version, want = content.get("version"), content.get("want", "run")
    settings, save = content.get("set", {}), content.get("save", 0)
    if want not in get_args(Want):
        raise InputError(
            "invalid_control",
            f"control.json asks for {want!r}; the known values are {', '.join(get_args(Want))}",
        )
    if isinstance(version, int) and isinstance(save, int) and isinstance(settings, dict):
        return Command(version, want, settings, save)
    raise InputError(
        "invalid_control",
        "in control.json, version and save must be whole numbers, and set must be an object",
    )
