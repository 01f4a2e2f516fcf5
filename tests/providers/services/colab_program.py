"""The command `colab` as a fake: sessions are folders here, and what is executed in them really runs.

As the real one it keeps a history of every argument and of all code that it was given. COLAB_STATE names its
folder. `fail-COMMAND` there holds the exit code and what it says; `hang-COMMAND` makes it stay.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ.get("COLAB_STATE", "."))


def main(words: list[str]) -> int:
    command = words[0]
    with (STATE / "history.jsonl").open("a") as history:
        history.write(json.dumps(words) + "\n")
    if (fails := STATE / f"fail-{command}").exists():
        code, _, says = fails.read_text().partition(" ")
        print(says, file=sys.stderr)
        return int(code)
    if (STATE / f"hang-{command}").exists():
        if command == "new":
            (STATE / "sessions" / words[2]).mkdir(parents=True)
        time.sleep(600)
    if command == "status":
        names = sorted(path.name for path in (STATE / "sessions").glob("*"))
        print(
            "\n".join(f"[{name}] gpu-t4-s-1 | Hardware: T4 | Variant: GPU | Status: IDLE" for name in names)
        )
        if not names:
            print("[colab] No active sessions.")
        return 0
    assert words[1] == "-s", words
    session = STATE / "sessions" / words[2]
    if command == "new":
        assert not session.exists(), "a second machine with the same name"
        assert words[3] == "--gpu", words
        session.mkdir(parents=True)
        print(f"[colab] Creating session '{session.name}'...\n[colab] Session READY.")
        return 0
    if not session.exists():
        print(f"[colab] Session '{session.name}' not found.")
        return 0 if command == "stop" else 1
    return {"upload": upload, "download": download, "exec": execute, "stop": stop}[command](
        session, words[3:]
    )


def there(session: Path, path: str) -> Path:
    return session / path.removeprefix("/content/")


def upload(session: Path, words: list[str]) -> int:
    shutil.copyfile(words[0], there(session, words[1]))
    print(f"[colab] Uploaded '{words[0]}' to '{words[1]}'")
    return 0


def download(session: Path, words: list[str]) -> int:
    if not there(session, words[0]).exists():
        print("[colab] Download failed: 404 Not Found")
        return 1
    shutil.copyfile(there(session, words[0]), words[1])
    return 0


def execute(session: Path, words: list[str]) -> int:
    code = Path(words[1]).read_text()
    with (STATE / "history.jsonl").open("a") as history:
        history.write(json.dumps({"code": code}) + "\n")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(session),
        "BLOOM_JOB_FOLDER": str(session / "job"),
        "COLAB_SESSION": str(session),
    }
    done = subprocess.run(
        [sys.executable, "-c", code.replace("/content", str(session))],
        env=environment,
        cwd=session,
        capture_output=True,
        text=True,
        check=False,
        # The real program gives up after so many seconds without output.
        timeout=float(words[words.index("--timeout") + 1]) if "--timeout" in words else 0.0,
    )
    print(done.stdout, done.stderr)
    return done.returncode


def stop(session: Path, _: list[str]) -> int:
    take_away(session)
    print("[colab] Session terminated.")
    return 0


def take_away(session: Path) -> None:
    """The machine goes with everything that runs on it, and nothing else."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.environ().get("COLAB_SESSION") == str(session):
                process.send_signal(signal.SIGKILL)
                process.wait(10)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    shutil.rmtree(session, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
