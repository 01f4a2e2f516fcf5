"""A million rows, a gigabyte: memory stays where it was, and any page is near."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 1_000_000
INSPECT = """
import json, resource, sys
from pathlib import Path
from gpubloom.datasets import Source, inspect, preview

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def bytes_read():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])

source = Source.open(Path(sys.argv[1]))
before = resident()
report = inspect(source)
# Not ru_maxrss: a process inherits that of whoever started it.
peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
grown = int(peak.split()[1]) * 1024 - before
pages = {}
for page in (1, 25_000, 50_000):
    begin = bytes_read()
    rows = preview(source, mapping=report.mapping, offset=(page - 1) * 20, limit=20).rows
    pages[page] = [bytes_read() - begin, rows[0].number, len(rows)]
print(json.dumps({
    "rows": report.rows, "examples": report.examples, "repeated": report.duplicates.repeated,
    "refused": report.problems.rows_refused, "grown": grown, "pages": pages,
}))
"""


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    answer = "So it was and so it will be. " * 30
    with path.open("w") as file:
        for number in range(ROWS):
            # Every thousandth row is broken, every other thousandth says what an earlier one said.
            if number % 1_000 == 7:
                file.write('{"prompt": "broken ' + answer + "\n")
                continue
            asked = 0 if number % 1_000 == 8 else number
            row = {"prompt": f"What is the matter with row {asked}? {answer[:100]}", "completion": answer}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_gigabyte_is_inspected_in_bounded_memory_and_any_page_is_near(large_file: Path) -> None:
    assert large_file.stat().st_size > 1_000_000_000
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(large_file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert (found["rows"], found["refused"]) == (ROWS, 1_000)
    assert found["examples"] == ROWS - 1_000
    assert found["repeated"] == 1_000
    assert found["grown"] < 150_000_000
    assert [first for _, first, _ in found["pages"].values()] == [1, 499_981, 999_981]
    # The index leads to a page: less than a hundredth of the file is read for it.
    assert all(read < large_file.stat().st_size / 100 for read, _, _ in found["pages"].values())
