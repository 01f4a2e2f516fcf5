"""What ends a command that asks something: Ctrl-C, the end of the input and a no, in a real terminal."""

import os
import pty
import select
import sys
from pathlib import Path

import pytest

LOGIN = ("auth", "login")
RESET = ("server", "reset-factors", "a@example.com")


def _answer(command: tuple[str, ...], prompt: str, typed: bytes, home: Path) -> tuple[str, int]:
    """Runs a command in a terminal and types once it asks; what it printed, and its exit status.

    Python loses a Ctrl-C between the prompt and the moment at which it waits for input. So whoever gets no
    reaction types again.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", XDG_CONFIG_HOME=str(home), BLOOM_HOME=str(home))
        os.environ.pop("BLOOM_TOKEN", None)
        os.execv(sys.executable, [sys.executable, "-m", "gpubloom.cli", *command])
    output, asked = "", False
    while True:
        if asked and not select.select([terminal], [], [], 2.0)[0]:
            os.write(terminal, typed)
            continue
        try:
            read = os.read(terminal, 65_536)
        except OSError:
            break
        if not read:
            break
        output += read.decode(errors="replace")
        if not asked and prompt in output:
            asked = True
            os.write(terminal, typed)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return output, os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(("command", "prompt"), [(LOGIN, "API token:"), (RESET, "[y/N]:")])
def test_ctrl_c_at_a_prompt_ends_as_every_other_ctrl_c(
    command: tuple[str, ...], prompt: str, tmp_path: Path
) -> None:
    output, status = _answer(command, prompt, b"\x03", tmp_path)
    assert status == 130, output
    assert "Aborted" not in output


@pytest.mark.parametrize("typed", [b"n\n", b"\x04"])
def test_a_no_and_the_end_of_the_input_are_no_interrupt(typed: bytes, tmp_path: Path) -> None:
    output, status = _answer(RESET, "[y/N]:", typed, tmp_path)
    assert status == 1, output
    assert "Aborted" in output
