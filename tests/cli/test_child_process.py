"""The process of a training: how its threads wait, and what it refuses."""

import sys
from pathlib import Path

import pytest

from gpubloom.cli.child_process import Child, thread_waiting


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "5"}])
def test_threads_spin_briefly_unless_somebody_chose_otherwise(chosen: dict[str, str]) -> None:
    assert set(thread_waiting({"PATH": "/bin"})) == {"GOMP_SPINCOUNT"}
    assert thread_waiting(chosen) == {}


def test_a_refusal_is_found_before_lines_of_another_process(tmp_path: Path) -> None:
    script = tmp_path / "refuse.py"
    script.write_text("print('error[run_in_use]: Another process trains here.')\nraise SystemExit(2)\n")
    child = Child([str(script)], tmp_path / "output.log", sys.executable)
    assert child.wait() == 2
    with (tmp_path / "output.log").open("a") as log:
        log.write("step 76/5,180  loss 3.9168\n")
    assert child.refusal().code == "run_in_use"
