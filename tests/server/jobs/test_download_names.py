"""The name of a download: as the script called the file, and nothing else in the header."""

import pytest

from gpubloom.scripts.task import ScriptTask
from gpubloom.server.accounts.tables import User
from tests.server.bringing import on_sqlite
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job


@on_sqlite
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("weights.bin", 'attachment; filename="weights.bin"'),
        ('a";x=".html', "attachment; filename*=utf-8''a%22%3Bx%3D%22.html"),
        ("naïve 模.txt", "attachment; filename*=utf-8''na%C3%AFve%20%E6%A8%A1.txt"),
    ],
)
def test_a_file_is_an_attachment_with_an_encoded_name(
    server: Server, installation: Installation, member: User, name: str, shown: str
) -> None:
    config = ScriptTask().model_dump(mode="json")
    job = add_job(installation, member, kind="script", status="completed", config=config)
    work = installation.home / "runs" / str(job.id) / "work"
    work.mkdir(parents=True)
    (work / name).write_text("<script>alert(1)</script>")
    browser = server.signed_in(member)
    [file] = browser.get(f"/api/jobs/{job.id}/artifacts").json()["items"]
    answer = browser.get(f"/api/jobs/{job.id}/artifacts/files/{file['path']}")
    assert answer.headers["content-disposition"] == shown
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


@on_sqlite
def test_a_name_that_would_end_the_header_is_not_offered(
    server: Server, installation: Installation, member: User
) -> None:
    config = ScriptTask().model_dump(mode="json")
    job = add_job(installation, member, kind="script", status="completed", config=config)
    work = installation.home / "runs" / str(job.id) / "work"
    work.mkdir(parents=True)
    (work / "a\r\nSet-Cookie: x").write_text("x")
    browser = server.signed_in(member)
    assert browser.get(f"/api/jobs/{job.id}/artifacts").json()["items"] == []
    assert browser.get(f"/api/jobs/{job.id}/artifacts/files/a%0d%0aSet-Cookie: x").status_code == 404
