"""People's own scripts over the API, spelled as was asked for: submit, look, take what came of it."""

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gpubloom.plan import Hardware
from gpubloom.plan.hardware import Gpu
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.server.ml_jobs import service
from gpubloom.server.projects.tables import Project
from gpubloom.server.storage import service as storage
from gpubloom.traincard.safe_paths import open_beneath
from tests.server.installation import Browser, Installation, Server

NANOGPT = Path(__file__).parents[2] / "nanogpt_folder"
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def _a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs here; whether a sandbox can be built is another test's."""
    monkeypatch.setattr(service, "why_no_sandbox", lambda: None)


def folder_files() -> list[dict[str, str]]:
    files = []
    for path in sorted(NANOGPT.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = base64.b64encode(path.read_bytes()).decode()
            files.append({"path": path.relative_to(NANOGPT).as_posix(), "base64": content})
    return files


def submit(browser: Browser, **body: Any) -> dict[str, Any]:
    answer = browser.post("/api/ml-jobs", json={"provider": "local", **body})
    assert answer.status_code == 201, answer.text
    started: dict[str, Any] = answer.json()
    return started


def refused(browser: Browser, status: int = 422, **body: Any) -> dict[str, Any]:
    answer = browser.post("/api/ml-jobs", json={"provider": "local", **body})
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


def work(installation: Installation, job_id: str) -> Path:
    return installation.home / "runs" / job_id / "work"


def test_a_folder_becomes_a_job_that_waits_for_a_worker(
    installation: Installation, member: User, ada: Browser
) -> None:
    started = submit(ada, files=folder_files(), arguments=["--max_iters=100"], max_hours=2.0, budget=5.0)
    assert started["provider"] == "local"
    assert started["estimated_cost"] == {"low": 0, "likely": 0, "high": 0}
    assert started["status_url"] == f"/api/ml-jobs/{started['job_id']}/status"
    assert any("runs on the CPU" in reason for reason in started["reasons"])
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert (job.kind, job.status, job.target, job.gpus, job.user_id) == (
        "script",
        "queued",
        "local",
        0,
        member.id,
    )
    assert (job.budget, job.max_hours, job.offer) == (5.0, 2.0, None)
    assert job.config["entry"] == "train.py"
    assert job.config["arguments"] == ["--max_iters=100"]
    assert job.config["resume_arguments"] == ["--init_from=resume"]
    assert (job.config["resumes"], job.config["checkpoint_folder"]) == (True, "out")
    assert job.config["packages"] == ["torch"]
    assert job.config["sandboxed"] is True
    there = work(installation, started["job_id"])
    assert (there / "train.py").read_bytes() == (NANOGPT / "train.py").read_bytes()
    assert (there / "data/verses/input.txt").is_file()
    (project,) = installation.all(Project)
    assert (project.name, project.model_architecture, project.model_size) == ("Scripts", None, None)
    # The second one goes there, too.
    submit(ada, code="print('hello')")
    assert len(installation.all(Project)) == 1
    listed = ada.get("/api/jobs").json()
    assert {item["kind"] for item in listed["items"]} == {"script"}


def test_the_status_says_how_far_it_is_what_it_printed_and_what_it_costs(
    installation: Installation, ada: Browser
) -> None:
    started = submit(ada, code="print('hello')", name="mine")
    job_id = started["job_id"]
    empty = ada.get(started["status_url"]).json()
    assert empty == {
        "id": job_id, "provider": "local", "status": "queued", "logs": [], "cost_so_far": 0.0,
        "estimated_total": 0.0, "error": None,
        "progress": dict.fromkeys(("step", "total_steps", "epoch", "total_epochs", "loss", "eta_seconds")),
    }  # fmt: skip
    job = installation.get(TrainingJob, UUID(job_id))
    assert job is not None
    installation.change(
        job,
        status="running",
        target="lambda",
        offer={"provider": "lambda", "estimate": {"low": 1.0, "likely": 2.5, "high": 6.0}},
        summary={
            "step": 5, "total_steps": 10, "epoch": 1, "epochs": 2, "eta_seconds": 12.5,
            "values": {"train/loss": {"value": 1.25, "step": 5}}, "cost": {"so_far": 0.75},
        },
    )  # fmt: skip
    logs = installation.home / "runs" / job_id / "logs"
    logs.mkdir()
    (logs / "output.log").write_text("Epoch 1/2\nloss: 1.25\n")
    assert ada.get(started["status_url"]).json() == {
        "id": job_id, "provider": "lambda", "status": "running", "logs": ["Epoch 1/2", "loss: 1.25"],
        "cost_so_far": 0.75, "estimated_total": 2.5, "error": None,
        "progress": {
            "step": 5, "total_steps": 10, "epoch": 1, "total_epochs": 2, "loss": 1.25, "eta_seconds": 12.5,
        },
    }  # fmt: skip


def test_what_a_script_made_is_listed_and_downloaded_and_links_lead_nowhere(
    installation: Installation, ada: Browser
) -> None:
    job_id = submit(ada, files=[{"path": "train.py", "text": "x = 1"}, {"path": "data/a.txt", "text": "a"}])[
        "job_id"
    ]
    address = f"/api/jobs/{job_id}/artifacts"
    assert ada.get(address).json()["items"] == []
    assert ada.get(f"{address}/archive").status_code == 404
    there = work(installation, job_id)
    (there / "out").mkdir()
    (there / "out" / "größe.pt").write_bytes(b"0123456789")
    (there / "data" / "a.txt").write_text("changed")
    (there / "out" / ".hidden").write_text("x")
    secret = installation.home / "secret.key"
    (there / "link.txt").symlink_to(secret)
    (there / "folder").symlink_to(installation.home)
    items = ada.get(address).json()["items"]
    assert items == [{"path": "data/a.txt", "size": 7}, {"path": "out/größe.pt", "size": 10}]
    whole = ada.get(f"{address}/files/out/größe.pt")
    assert (whole.status_code, whole.content) == (200, b"0123456789")
    part = ada.get(f"{address}/files/out/größe.pt", headers={"Range": "bytes=4-6"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"456", "bytes 4-6/10")
    for name in ("link.txt", "folder/secret.key", "../../../secret.key", "train.py", "out/.hidden"):
        assert ada.get(f"{address}/files/{name}").status_code == 404, name
    with tarfile.open(fileobj=io.BytesIO(ada.get(f"{address}/archive").content)) as archive:
        assert [name.partition("/")[2] for name in archive.getnames()] == ["data/a.txt", "out/größe.pt"]
    shown = ada.get(f"/api/jobs/{job_id}/script").json()
    assert shown["script"] == "x = 1"


def test_uploaded_files_are_read_back_as_they_were_sent(installation: Installation, ada: Browser) -> None:
    files = [
        {"path": "data/größe.txt", "text": "12", "base64": None},
        {"path": "train.py", "text": "x = 1", "base64": None},
        {"path": "weights.bin", "text": None, "base64": "AQL/"},
        {"path": "zeros.bin", "text": None, "base64": "AAA="},
    ]
    job_id = submit(ada, files=[*files, {"path": "log.txt", "text": "a"}, {"path": "old.py", "text": "a"}])[
        "job_id"
    ]
    there = work(installation, job_id)
    (there / "log.txt").write_text("ab")
    (there / "out.txt").write_text("made by the script")
    (there / "old.py").unlink()
    (there / "old.py").symlink_to(installation.home / "secret.key")
    read = ada.get(f"/api/ml-jobs/{job_id}/files").json()
    assert read == {"items": files, "changed": ["log.txt", "old.py"]}
    submit(ada, files=[{name: value for name, value in file.items() if value is not None} for file in files])


def test_a_rewritten_record_of_uploads_leads_nowhere(installation: Installation, ada: Browser) -> None:
    """A rented machine sends the record back, and may have filled the folder."""
    job_id = submit(ada, files=[{"path": "train.py", "text": "x = 1"}])["job_id"]
    there = work(installation, job_id)
    with (there / "large.bin").open("wb") as file:
        file.truncate(1 << 40)
    facts = (there / "large.bin").stat()
    record = {"../../../secret.key": [32, 0], "large.bin": [facts.st_size, facts.st_mtime_ns]}
    (there.parent / "brought.json").write_text(json.dumps(record))
    read = ada.get(f"/api/ml-jobs/{job_id}/files").json()
    assert read == {"items": [], "changed": ["../../../secret.key", "large.bin"]}


def test_a_folder_swapped_for_a_link_while_it_is_read_leads_nowhere(
    tmp_path: Path,
) -> None:
    top = tmp_path / "work"
    (top / "out").mkdir(parents=True)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (top / "out").rmdir()
    (top / "out").symlink_to(outside)
    with pytest.raises(OSError, match="out"):
        open_beneath(top, "out/secret")


def test_jobs_of_others_are_not_found(server: Server, ada: Browser, admin: User) -> None:
    job_id = submit(ada, code="x = 1")["job_id"]
    other = server.signed_in(admin)
    for address in (
        f"/api/ml-jobs/{job_id}/status",
        f"/api/ml-jobs/{job_id}/files",
        f"/api/jobs/{job_id}/artifacts",
    ):
        assert other.get(address).status_code == 404
    project = ada.get(f"/api/jobs/{job_id}").json()["project_id"]
    assert (
        other.post(
            "/api/ml-jobs", json={"code": "x = 1", "provider": "local", "project_id": project}
        ).status_code
        == 404
    )


@on_sqlite
@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "files", "contradictory_fields"),
        ({"code": "x = 1", "files": [{"path": "a.py", "text": ""}]}, "files", "contradictory_fields"),
        ({"files": [{"path": "../a.py", "text": ""}]}, "files.0.path", "path_outside_folder"),
        ({"files": [{"path": "/etc/a.py", "text": ""}]}, "files.0.path", "path_outside_folder"),
        ({"files": [{"path": ".git/config", "text": ""}]}, "files.0.path", "hidden_file"),
        ({"files": [{"path": "a.py"}]}, "files.0", "contradictory_fields"),
        ({"files": [{"path": "a.py", "base64": "%%"}]}, "files.0", "not_base64"),
        (
            {"files": [{"path": "a.py", "text": ""}, {"path": "a.py", "text": ""}]},
            "files.1.path",
            "duplicate_file",
        ),
        ({"files": [{"path": "a", "text": ""}, {"path": "a/b.py", "text": ""}]}, "files", "duplicate_file"),
        ({"files": [{"path": "a", "text": ""}, {"path": "a/b/c.py", "text": ""}]}, "files", "duplicate_file"),
        ({"files": [{"path": "x" * 253 + ".py", "text": ""}]}, "files.0.path", "invalid_file_name"),
        (
            {"files": [{"path": "a.py", "text": ""}, {"path": "b.py", "text": ""}]},
            "entry",
            "entry_missing",
        ),
        ({"files": [{"path": "a.py", "text": ""}], "entry": "b.py"}, "entry", "entry_not_found"),
        ({"code": "x = (1,"}, "entry", "not_python"),
        ({"code": "x = 1", "datasets": ["no-such"]}, "datasets", "not_found"),
        ({"code": "x = 1", "datasets": ["az://store/corpus"]}, "datasets", "path_not_local"),
        ({"code": "x = 1", "datasets": ["s3://a/../b"]}, "datasets", "path_outside_folder"),
        ({"code": "x = 1", "datasets": ["s3://a/words/", "gs://b/words"]}, "datasets", "duplicate_dataset"),
        ({"code": "x = 1", "environment": {"HF_TOKEN": "x"}}, None, "secret_variable"),
        ({"code": "x = 1", "provider": "nobody"}, "provider", "unknown_provider"),
        ({"code": "x = 1", "colour": "red"}, "colour", "extra_forbidden"),
        ({"code": "x = 1", "budget": -1}, "budget", "greater_than_equal"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field_and_leaves_nothing(
    installation: Installation, ada: Browser, body: dict[str, Any], field: str | None, code: str
) -> None:
    problem = refused(ada, **body)
    if field is None:
        assert problem["code"] == code
    else:
        assert (problem["errors"][0]["field"], problem["errors"][0]["code"]) == (field, code)
    assert installation.all(TrainingJob) == []
    assert not list((installation.home / "runs").glob("*"))


@on_sqlite
def test_a_folder_may_have_megabytes_but_not_any_number(ada: Browser, server: Server) -> None:
    large = base64.b64encode(bytes(4 << 20)).decode()
    submit(ada, files=[{"path": "train.py", "text": "x = 1"}, {"path": "data.bin", "base64": large}])
    too_large = ada.post("/api/ml-jobs", content=b'{"code": "' + b"#" * (33 << 20) + b'"}')
    assert too_large.status_code == 413
    assert ada.post("/api/ml-jobs", content=b"{nonsense").status_code == 400
    # Strangers are turned away before a body is read.
    assert server.stranger.post("/api/ml-jobs", content=b"#" * (20 << 20)).status_code in {401, 403}


@on_sqlite
def test_the_files_of_scripts_count_towards_the_quota_at_once(
    installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installation.serve(user_quota_gb=0.000_1) as small:
        ada = small.signed_in(member)
        files = [{"path": "train.py", "text": "x = 1"}, {"path": "data.txt", "text": "x" * 60_000}]
        submit(ada, files=files)
        assert refused(ada, 413, files=files)["code"] == "quota_exceeded"
        monkeypatch.setattr(storage, "free_bytes", lambda folder: storage.SPARE_BYTES)
        assert refused(ada, 413, code="x = 1")["code"] == "disk_full"
    assert len(list((installation.home / "runs").glob("*"))) == 1


@on_sqlite
def test_a_notebook_becomes_a_script(installation: Installation, ada: Browser) -> None:
    cells = [{"cell_type": "code", "source": ["!pip install tqdm\n", "x = 1"], "metadata": {}, "outputs": []}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    started = submit(ada, files=[{"path": "mine.ipynb", "text": notebook}])
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert job.config["entry"] == "mine.py"
    assert job.config["packages"] == ["tqdm"]
    assert "# magic: !pip install tqdm" in (work(installation, started["job_id"]) / "mine.py").read_text()
    assert "mine.ipynb was converted to the script mine.py." in started["reasons"]


@on_sqlite
def test_without_a_sandbox_only_an_admin_who_confirms_may_go_on_and_that_is_written_down(
    installation: Installation, server: Server, ada: Browser, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "why_no_sandbox", lambda: "Bubblewrap is not installed here. Install it.")
    for browser, confirmed in ((ada, False), (ada, True), (server.signed_in(admin), False)):
        problem = refused(browser, 403, code="x = 1", confirmed=confirmed)
        assert problem["code"] == "no_sandbox"
        assert "Install it." in problem["detail"]
    # A token without the right to administer is not enough.
    assert (
        server.program(admin, "read", "write")
        .post("/api/ml-jobs", json={"code": "x = 1", "provider": "local", "confirmed": True})
        .status_code
        == 403
    )
    started = submit(server.signed_in(admin), code="x = 1", confirmed=True)
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert job.config["sandboxed"] is False
    assert "script.confirmed" in installation.actions()


@on_sqlite
def test_the_machines_network_is_for_admins(
    installation: Installation, server: Server, ada: Browser, admin: User
) -> None:
    assert refused(ada, 403, code="x = 1", network=True)["code"] == "network_for_admins"
    submit(server.signed_in(admin), code="x = 1", network=True)
    assert "script.confirmed" in installation.actions()


@on_sqlite
def test_a_gpu_of_this_machine_is_taken_where_one_is_large_enough(
    installation: Installation, ada: Browser
) -> None:
    gpu = Gpu(name="NVIDIA A10", memory_bytes=24 << 30, flops=1e14, bf16=True)
    hardware = Hardware(name="here", host_memory_bytes=64 << 30, cpu_cores=8, gpus=(gpu,))
    installation.add(Worker(name="w", hardware=hardware.model_dump(mode="json"), last_seen_at=now()))
    script = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n"
    # Nobody says where: what costs nothing is best.
    started = submit(ada, code=script, provider=None)
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert (job.target, job.gpus) == ("local", 1)
    assert any("at no cost" in reason for reason in started["reasons"])
    # A GPU that was named is this one, or the job does not run here.
    assert submit(ada, code=script, provider=None, constraints={"gpus": ["a10"]})["provider"] == "local"
    for code in (script, "print('no GPU')"):
        other = refused(ada, 422, code=code, provider=None, constraints={"gpus": ["RTX 4090"]})
        assert other["errors"][0]["code"] == "not_connected"
    unknown = refused(ada, 422, code=script, provider=None, constraints={"gpus": ["RTX 9999"]})
    assert unknown["errors"][0]["code"] == "no_offer"
    assert "Known GPUs: A10, A100 40GB" in unknown["errors"][0]["message"]
    started = submit(ada, code=script, requirements={"gpu_memory_gb": 80})
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert job.gpus == 0
    assert any("large enough" in reason for reason in started["reasons"])


@on_sqlite
def test_what_this_machine_lacks_is_said_beforehand(ada: Browser) -> None:
    script = (
        "import torch, not_a_real_package\nfrom transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    )
    reasons = " ".join(submit(ada, code=script)["reasons"])
    assert "Not installed on the server's machine: not-a-real-package." in reasons.replace("_", "-")
    assert "The script loads Qwen/Qwen2.5-0.5B. Without network access" in reasons
    assert "Not installed" not in " ".join(submit(ada, code="import numpy")["reasons"])


@on_sqlite
def test_a_service_that_is_not_connected_is_refused_with_what_to_do(ada: Browser) -> None:
    script = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n"
    problem = refused(ada, code=script, provider="lambda")
    assert problem["errors"][0]["field"] in {"provider", "offer", "offer.provider"}
    # A GPU that was named cannot be had here.
    problem = refused(ada, code=script, provider=None, constraints={"gpus": ["A10"]})
    assert problem["errors"][0]["code"] == "not_connected"
    offer = {"provider": "lambda", "gpu": "A10", "gpus": 1}
    assert refused(ada, code=script, provider=None, offer=offer)["errors"]


@on_sqlite
@pytest.mark.parametrize("memory_gb", [8, 4_000], ids=["offers fit", "no offer fits"])
def test_without_a_connected_provider_a_job_runs_on_the_machine_of_the_server(
    installation: Installation, ada: Browser, memory_gb: int
) -> None:
    script = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n"
    started = submit(ada, code=script, provider=None, requirements={"gpu_memory_gb": memory_gb})
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert (job.target, job.gpus) == ("local", 0)
    assert started["reasons"][0].startswith("No provider is connected")
    assert "runs on the CPU" in started["reasons"][1]


@on_sqlite
def test_pausing_is_refused_where_the_script_could_not_go_on(
    installation: Installation, ada: Browser
) -> None:
    cannot = submit(ada, code="print('hello')")["job_id"]
    problem = ada.post(f"/api/jobs/{cannot}/pause")
    assert (problem.status_code, problem.json()["code"]) == (409, "cannot_resume")
    can = submit(ada, files=folder_files())["job_id"]
    assert ada.post(f"/api/jobs/{can}/pause").json()["status"] == "paused"
    assert ada.post(f"/api/jobs/{can}/resume").json()["status"] == "queued"
    assert ada.post(f"/api/jobs/{can}/save").json()["code"] == "not_for_this_kind"
    assert ada.post(f"/api/jobs/{can}/cancel").json()["status"] == "cancelled"
    assert ada.delete(f"/api/jobs/{can}").status_code == 204
    assert not work(installation, can).exists()


@on_sqlite
def test_templates_can_be_submitted_as_they_are(installation: Installation, ada: Browser) -> None:
    shown = ada.get("/api/ml-jobs/templates").json()["items"]
    local = next(template for template in shown if template["provider"] == "local")
    assert set(local) == {
        "name", "title", "provider", "description", "files", "arguments", "datasets", "gpu",
    }  # fmt: skip
    started = submit(ada, files=local["files"], arguments=local["arguments"], name=local["title"])
    job = installation.get(TrainingJob, UUID(started["job_id"]))
    assert job is not None
    assert job.name == local["title"]


@on_sqlite
def test_a_quote_says_where_and_for_how_much_and_starts_nothing(
    installation: Installation, ada: Browser
) -> None:
    quote = ada.post("/api/ml-jobs/quote", json={"files": folder_files(), "provider": "local"})
    assert quote.status_code == 200, quote.text
    assert quote.json()["estimated_cost"]["likely"] == 0
    assert (quote.json()["provider"], quote.json()["offer"]) == ("local", None)
    assert installation.all(TrainingJob) == []
