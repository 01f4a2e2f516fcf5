"""Files of one person that take long to read do not keep others from reading theirs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.datasets import reading
from tests.server.bringing import brought, on_sqlite
from tests.server.endless_parser import RELEASE
from tests.server.installation import Installation, Server
from tests.waiting import wait_until

ROWS = b'{"prompt": "a", "completion": "b"}\n'
MODULE = "tests.server.endless_parser"


def reading_now() -> int:
    found = 0
    for child in psutil.Process().children():
        with child.oneshot():
            found += child.is_running() and MODULE in child.cmdline()
    return found


@pytest.mark.long
@on_sqlite
def test_a_person_whose_files_take_for_ever_leaves_readers_for_others(
    server: Server, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bo = server.signed_in(member), server.signed_in(installation.add_user("Bo"))
    endless, quick = brought(server, ada, "a.jsonl", ROWS)["id"], brought(server, bo, "b.jsonl", ROWS)["id"]
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("HF_HUB_TEST_ENDLESS", endless)
    monkeypatch.setattr(reading, "MODULE", MODULE)
    monkeypatch.setattr(reading, "_PREVIEW_SECONDS", 120)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ada.get, f"/api/datasets/{endless}/preview") for _ in range(8)]
        try:
            wait_until(lambda: reading_now() >= 2, "two of them are being read")
            page = bo.get(f"/api/datasets/{quick}/preview")
            assert page.status_code == 200, page.text
            assert not any(answer.done() for answer in waiting)
            assert reading_now() == 2
        finally:
            (installation.home / "datasets" / endless / RELEASE).touch()
        assert [answer.result().status_code for answer in waiting] == [200] * 8
