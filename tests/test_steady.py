"""`make steady`: random order that a seed repeats, and a list of whatever failed in any pass."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Its import takes as long as the rest of such a start, and nothing here needs it.
LIGHT = ("-p", "no:schemathesis")
SAMPLE = "\n".join(f"def test_{number}(): pass" for number in range(12))


def _order(folder: Path, seed: int) -> list[str]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.conftest", "--rootdir", str(folder)),
            *("-vv", "-o", "addopts=", *LIGHT, "--order-seed", str(seed), str(folder)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split()[0] for line in done.stdout.splitlines() if " PASSED" in line]


def test_a_seed_gives_the_order_and_modules_stay_together(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(SAMPLE)
    first, again, other = _order(tmp_path, 1), _order(tmp_path, 1), _order(tmp_path, 2)
    assert first == again
    assert first != other
    assert len(first) == 36
    assert sorted(first) == sorted(other)
    modules = [test.partition("::")[0] for test in first]
    changes = [
        module for module, earlier in zip(modules, [None, *modules], strict=False) if module != earlier
    ]
    assert len(changes) == 3


def test_whatever_failed_in_a_pass_is_listed_with_its_seed(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    marker = tmp_path / "was here"
    sample.write_text(
        f"""
from pathlib import Path
import pytest

def test_passes(): pass

@pytest.mark.parametrize("address", ["a@b"])
def test_fails_the_second_time(address):
    assert not Path({str(marker)!r}).exists()
    Path({str(marker)!r}).touch()

def test_is_skipped(): pytest.skip("not here")
"""
    )
    done = subprocess.run(
        [
            *(sys.executable, "tools/steady.py", "--seed", "7", "--passes", "quiet quiet"),
            *(
                "--results",
                str(tmp_path / "results"),
                "--pytest",
                f"-n 0 {' '.join(LIGHT)} -p tests.conftest --timeout-factor 4 {sample}",
            ),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pass 1 (quiet, seed 7): 2 passed, 0 failed, 1 skipped" in done.stdout
    assert "pass 2 (quiet, seed 8): 1 passed, 1 failed, 1 skipped" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.endswith("pass 2 (seed 8)")]
    assert "test_fails_the_second_time[a@b]: pass 2 (seed 8)" in line
    assert len(list((tmp_path / "results").glob("*/pass-*.log"))) == 2
