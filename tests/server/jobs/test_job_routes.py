"""The API of training jobs: what is accepted, refused, asked for and hidden. On both databases."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from gpubloom.plan import Gpu, Hardware, TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import AuditEvent
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.server.projects.tables import Project
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_project

NEW_PROJECT = {"name": "New", "model_architecture": "transformer", "model_size": 0.001}


@pytest.fixture
def text(installation: Installation, server: Server) -> Path:
    path = installation.home / "uploads/corpus.txt"
    path.write_text("To be, or not to be, that is the question. " * 500)
    return path


def _add_machine(installation: Installation, *gpus: Gpu, memory: int = 64 * 10**9) -> None:
    hardware = Hardware(name="box", host_memory_bytes=memory, cpu_cores=8, gpus=gpus)
    installation.add(Worker(id=uuid4(), name="box:1", hardware=hardware.model_dump(mode="json")))


def test_a_job_is_queued_with_its_full_config_and_plan(
    installation: Installation, member: User, ada: Browser, text: Path
) -> None:
    project = add_project(installation, member, training_data_path="corpus.txt")
    answer = ada.post(
        "/api/jobs",
        json={
            "project_id": str(project.id),
            "name": "First try",
            # The spelling of the first description of the product.
            "config": {"learning_rate": 0.0001, "batchSize": 1, "epochs": 3, "optimizer": "AdamW"},
        },
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["status"], job["queue_position"], job["project_name"]) == ("queued", 1, "P")
    assert job["config"]["data"]["train_path"] == "corpus.txt"
    assert (job["config"]["learning_rate"], job["config"]["epochs"]) == (0.0001, 3)
    assert job["plan"]["steps"] > 0
    listed = ada.get("/api/jobs", params={"project_id": str(project.id)}).json()
    assert [item["id"] for item in listed["items"]] == [job["id"]]
    assert ada.get(f"/api/jobs/{job['id']}").json()["name"] == "First try"


def test_project_and_first_job_are_created_together_or_not_at_all(
    installation: Installation, ada: Browser, text: Path
) -> None:
    refused = ada.post(
        "/api/jobs",
        json={"project": {**NEW_PROJECT, "training_data_path": "corpus.txt"}, "config": {"batch_size": -1}},
    )
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "config.batch_size"
    assert installation.all(Project) == []
    accepted = ada.post("/api/jobs", json={"project": {**NEW_PROJECT, "training_data_path": "corpus.txt"}})
    assert accepted.status_code == 201, accepted.text
    assert [project.name for project in installation.all(Project)] == ["New"]


def test_a_job_without_data_is_the_demo(ada: Browser) -> None:
    job = ada.post("/api/jobs", json={"project": NEW_PROJECT}).json()
    assert job["config"]["data"]["train_path"].endswith("*.py")
    assert job["config"]["max_steps"] is not None, "a demo ends by itself, soon"


def test_a_demo_can_be_started_again_with_the_config_it_was_given(ada: Browser) -> None:
    first = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": {}}).json()
    again = {"project_id": first["project_id"], "config": {**first["config"], "max_steps": 7}}
    answer = ada.post("/api/jobs", json=again)
    assert answer.status_code == 201, answer.text
    assert answer.json()["config"]["data"] == first["config"]["data"]


def test_the_sample_job_runs_where_its_gpu_is_and_is_refused_on_other_hardware(
    installation: Installation, ada: Browser, text: Path
) -> None:
    body = {
        "project": {**NEW_PROJECT, "training_data_path": "corpus.txt"},
        "config": {"learning_rate": 0.0001, "batchSize": 1, "epochs": 3, "optimizer": "AdamW"},
        "gpu_type": "H200",
        "host_memory": 1536,
    }
    _add_machine(installation)
    refused = ada.post("/api/jobs", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"] == (
        "This server has no GPU. Leave the GPU type empty to train on the CPU."
    )
    assert ada.post("/api/plan", json={"gpu_type": "H200"}).json()["fits"] is False
    h200 = Gpu(name="NVIDIA H200", memory_bytes=150 * 10**9)
    _add_machine(installation, h200)
    too_small = ada.post("/api/jobs", json=body)
    assert too_small.json()["errors"][0]["field"] == "host_memory"
    _add_machine(installation, h200, memory=1536 * 10**9)
    job = ada.post("/api/jobs", json=body).json()
    assert (job["gpu_type"], job["host_memory"], job["config"]["device"]) == ("H200", 1536, "cuda")


def test_precision_and_optimizer_state_reach_the_plan_and_the_job(
    installation: Installation, ada: Browser, text: Path
) -> None:
    _add_machine(installation, Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=80 * 10**9), memory=256 * 10**9)
    config = {"precision": "fp8", "optimizer": {"state": "8bit"}, "model": {"preset": "1b"}}
    body: dict[str, Any] = {"config": {**config, "data": {"train_path": "corpus.txt"}}}
    planned = ada.post("/api/plan", json=body).json()
    assert planned["fits"] is True, planned["reason"]
    assert planned["plan"]["precision"] == "fp8"
    wider = {**body["config"], "optimizer": {"state": "fp32"}}
    in_fp32 = ada.post("/api/plan", json={"config": wider}).json()["plan"]
    moments, in_fp32_moments = (
        sum(plan[part]["optimizer"] for part in ("gpu", "host")) for plan in (planned["plan"], in_fp32)
    )
    # A byte each instead of four, and the scales of blocks.
    assert moments < 0.3 * in_fp32_moments
    job = ada.post("/api/jobs", json={**body, "project": NEW_PROJECT}).json()
    assert job["plan"]["precision"] == "fp8"
    (stored,) = installation.all(TrainingJob)
    assert (stored.config["precision"], stored.config["optimizer"]["state"]) == ("fp8", "8bit")


def test_fp8_is_refused_for_a_gpu_that_cannot_multiply_in_it(
    installation: Installation, ada: Browser, text: Path
) -> None:
    _add_machine(installation, Gpu(name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * 10**9), memory=256 * 10**9)
    config = {"precision": "fp8", "data": {"train_path": "corpus.txt"}}
    refused = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
    assert refused.status_code == 422
    assert refused.json()["code"] == "precision_not_supported"
    assert installation.all(TrainingJob) == []
    planned = ada.post("/api/plan", json={"config": config}).json()
    assert (planned["fits"], planned["code"], planned["plan"]) == (False, "precision_not_supported", None)


def test_a_model_that_cannot_fit_is_refused_with_what_would(
    installation: Installation, ada: Browser, text: Path
) -> None:
    _add_machine(installation, memory=3 * 10**9)
    answer = ada.post(
        "/api/plan",
        json={
            "config": {
                "batch_size": 4096,
                "model": {"context_length": 256},
                "data": {"train_path": "corpus.txt"},
            }
        },
    ).json()
    assert answer["fits"] is False
    assert "would fit" in answer["reason"]
    nearest = answer["options"][0]
    assert list(nearest["changes"]) == ["batch_size"], "only what has to change"
    assert nearest["plan"]["memory_total_bytes"] < 3 * 10**9
    needed, limit = (sum(answer["needs"]["host"].values()), answer["needs"]["host"]["limit_bytes"])
    assert needed - limit > limit


def test_the_nearest_setting_fits_when_it_is_taken(
    installation: Installation, ada: Browser, text: Path
) -> None:
    _add_machine(installation, Gpu(name="Small card", memory_bytes=8 * 10**9), memory=64 * 10**9)
    config: dict[str, Any] = {
        "model": {"preset": "1b"},
        "memory": {"mode": "resident"},
        "data": {"train_path": "corpus.txt"},
    }
    refused = ada.post("/api/plan", json={"config": config}).json()
    nearest = refused["options"][0]
    assert nearest["changes"]["memory.mode"] == "auto"
    for path, value in nearest["changes"].items():
        part, _, field = path.rpartition(".")
        (config[part] if part else config)[field] = value
    taken = ada.post("/api/plan", json={"config": config}).json()
    assert taken["fits"] is True, taken["reason"]
    assert taken["plan"] == nearest["plan"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lerning_rate": 1}, "This field is unknown. Did you mean learning_rate?"),
        ({"model": {"hidenSize": 64}}, "This field is unknown. Did you mean hidden_size?"),
        ({"optimizer": {"qqq": 1}}, "This field is unknown. Known fields: name, state"),
    ],
)
def test_an_unknown_config_field_has_a_suggestion(ada: Browser, config: dict[str, Any], message: str) -> None:
    answer = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
    assert answer.json()["errors"][0]["message"].startswith(message)


def test_a_plan_without_a_remedy_offers_none(ada: Browser) -> None:
    answer = ada.post("/api/plan", json={"config": {"batch_size": -1}}).json()
    assert (answer["fits"], answer["options"]) == (False, [])


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "field", "code"),
    [
        ({"no_such_field": 1}, "config.no_such_field", "extra_forbidden"),
        ({"model": {"preset": "huge"}}, "config.model.preset", "unknown_preset"),
        ({"data": {"train_path": "/etc/passwd"}}, "config.data.train_path", "path_not_allowed"),
        ({"data": {"train_path": "../../secrets"}}, "config.data.train_path", "path_outside_folder"),
        ({"data": {"train_path": "az://container/x"}}, "config.data.train_path", "path_not_local"),
        ({"data": {"train_path": "missing.txt"}}, "config.data.train_path", "data_not_found"),
        (
            {"data": {"train_path": "corpus.txt", "eval_path": "/etc/passwd"}},
            "config.data.eval_path",
            "path_not_allowed",
        ),
        (
            {"data": {"train_path": "corpus.txt"}, "model": {"path": "/etc"}},
            "config.model.path",
            "path_not_allowed",
        ),
        ({"checkpoint": {"directory": "/tmp/elsewhere"}}, "config.checkpoint.directory", "not_on_a_server"),
        (
            {"data": {"train_path": "corpus.txt", "tokenizer": {"kind": "file", "path": "/etc/passwd"}}},
            "config.data.tokenizer.path",
            "path_not_allowed",
        ),
        ({"data": "text"}, "config.data", "model_type"),
    ],
)
def test_a_config_that_cannot_be_trained_says_which_field_and_why(
    ada: Browser, text: Path, config: dict[str, Any], field: str, code: str
) -> None:
    answer = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), answer.text
    first = answer.json()["errors"][0]
    assert (first["field"], first["code"]) == (field, code)


def test_links_inside_a_folder_do_not_lead_out_of_it(
    installation: Installation, server: Server, ada: Browser, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret " * 1000)
    folder = installation.home / "uploads/corpus"
    folder.mkdir()
    (folder / "fine.txt").write_text("fine " * 1000)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    for path in ("corpus", "corpus/lin[k].txt", "corpus/*"):
        config = {"data": {"train_path": path}}
        answer = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "config.data.train_path")


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("path", ["tokens", "tokens/*", "plain/tokenizer.json"])
def test_links_beside_a_tokenizer_do_not_lead_out_of_its_folder(
    installation: Installation, ada: Browser, text: Path, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.json").write_text("{}")
    uploads = installation.home / "uploads"
    for folder, link in (("tokens", "tokenizer.json"), ("plain", "tokenizer_config.json")):
        (uploads / folder).mkdir()
        (uploads / folder / link).symlink_to(tmp_path / "secret.json")
    (uploads / "plain/tokenizer.json").write_text("{}")
    config = {"data": {"train_path": "corpus.txt", "tokenizer": {"kind": "file", "path": path}}}
    answer = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
    assert answer.status_code == 422, answer.text
    first = answer.json()["errors"][0]
    assert (first["field"], first["code"]) == ("config.data.tokenizer.path", "path_not_allowed")


def _path_fields(model: type[BaseModel], *inside: str) -> Iterator[tuple[str, ...]]:
    """The fields of a config that name a file or a folder."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _path_fields(field.annotation, *inside, name)
        elif "path" in name or "directory" in name or "file" in name:
            yield (*inside, name)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_no_path_field_of_a_config_may_name_a_file_of_the_server(ada: Browser, text: Path) -> None:
    found = list(_path_fields(TrainConfig))
    assert {("data", "train_path"), ("data", "tokenizer", "path"), ("model", "path")} < set(found)
    for field in found:
        config: dict[str, Any] = {"data": {"train_path": "corpus.txt", "tokenizer": {}}}
        part = config
        for name in field[:-1]:
            part = part.setdefault(name, {})
        part[field[-1]] = "/etc/passwd"
        if field == ("data", "tokenizer", "path"):
            part["kind"] = "file"
        answer = ada.post("/api/jobs", json={"project": NEW_PROJECT, "config": config})
        assert answer.status_code == 422, field
        first = answer.json()["errors"][0]
        assert (first["field"], first["code"]) in {
            (".".join(("config", *field)), "path_not_allowed"),
            (".".join(("config", *field)), "not_on_a_server"),
        }


def test_a_person_has_so_many_jobs_in_the_queue_and_others_theirs(
    installation: Installation, member: User
) -> None:
    paused = add_job(installation, member, status="paused")
    completed = add_job(installation, member, status="completed")
    with installation.serve(max_queued_jobs_per_user=2) as server:
        ada, grace = server.signed_in(member), server.signed_in(installation.add_user("Grace"))
        body = {"project": NEW_PROJECT, "config": {}}
        assert [ada.post("/api/jobs", json=body).status_code for _ in range(2)] == [201, 201]
        for refused in (
            ada.post("/api/jobs", json=body),
            ada.post(f"/api/jobs/{paused.id}/resume"),
            ada.post(f"/api/jobs/{completed.id}/extend", json={"epochs": 99}),
        ):
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_queued_jobs")
            assert int(refused.headers["Retry-After"]) > 0
        assert grace.post("/api/jobs", json=body).status_code == 201
        # What is refused changes nothing, and a place that is free again can be taken.
        queued = [job for job in installation.all(TrainingJob) if job.status == "queued"]
        assert len(queued) == 3
        own = next(job for job in queued if job.user_id == member.id)
        assert ada.post(f"/api/jobs/{own.id}/cancel").status_code == 200
        assert ada.post(f"/api/jobs/{paused.id}/resume").json()["status"] == "queued"


def test_commands_are_stored_and_follow_the_table_of_states(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="running")
    address = f"/api/jobs/{job.id}"
    changed = ada.patch(f"{address}/settings", json={"learning_rate": 5e-4}).json()["settings"]
    assert {name: value for name, value in changed.items() if value is not None} == {"learning_rate": 5e-4}
    assert ada.post(f"{address}/save").status_code == 200
    assert ada.post(f"{address}/pause").json()["status"] == "pausing"
    again = ada.post(f"{address}/pause")
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")
    assert ada.post(f"{address}/cancel").json()["status"] == "cancelling"
    assert ada.delete(address).status_code == 409
    stored = installation.get(TrainingJob, job.id)
    assert stored is not None
    assert (stored.want, stored.saves, stored.control_version) == ("cancel", 1, 4)


def test_a_queued_job_is_cancelled_at_once_and_can_be_resumed_and_deleted(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member)
    address = f"/api/jobs/{job.id}"
    assert ada.post(f"{address}/cancel").json()["status"] == "cancelled"
    assert ada.post(f"{address}/resume").json()["status"] == "queued"
    assert ada.post(f"{address}/pause").json()["status"] == "paused"
    run_dir = installation.home / "runs" / str(job.id)
    run_dir.mkdir(parents=True)
    assert ada.delete(address).status_code == 204
    assert ada.get(address).status_code == 404
    assert not run_dir.exists()


def test_a_project_with_jobs_is_not_deleted(installation: Installation, member: User, ada: Browser) -> None:
    job = add_job(installation, member)
    answer = ada.delete(f"/api/projects/{job.project_id}")
    assert (answer.status_code, answer.json()["code"]) == (409, "project_in_use")
    assert ada.get(f"/api/jobs/{job.id}").status_code == 200


def test_a_completed_job_is_extended_by_asking_for_more(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed", summary={"step": 100})
    address = f"/api/jobs/{job.id}/extend"
    assert ada.post(address, json={}).json()["errors"][0]["field"] == "epochs"
    assert ada.post(address, json={"epochs": 2}).status_code == 422
    assert ada.post(address, json={"max_steps": 100}).json()["errors"][0]["field"] == "max_steps"
    extended = ada.post(address, json={"epochs": 12}).json()
    assert (extended["status"], extended["config"]["epochs"]) == ("queued", 12)


def test_the_model_is_downloaded_whole_in_parts_and_by_file(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, status="completed")
    model = installation.home / "runs" / str(job.id) / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(range(256)) * 64)
    (model / "link").symlink_to("/etc/passwd")
    address = f"/api/jobs/{job.id}/model"
    listed = ada.get(address).json()
    assert [file["path"] for file in listed["items"]] == ["config.json", "model.safetensors"]
    whole = ada.get(f"{address}/archive")
    assert len(whole.content) == listed["archive_size"] == int(whole.headers["content-length"])
    rest = ada.get(f"{address}/archive", headers={"Range": "bytes=1000-"})
    assert (rest.status_code, rest.content) == (206, whole.content[1000:])
    last = ada.get(f"{address}/archive", headers={"Range": "bytes=-10"})
    assert last.content == whole.content[-10:]
    beyond = ada.get(f"{address}/archive", headers={"Range": f"bytes={len(whole.content)}-"})
    assert beyond.status_code == 416
    assert ada.get(f"{address}/files/model.safetensors").content == bytes(range(256)) * 64
    for name in ("link", "../config.json", "..%2fconfig.json", "missing"):
        assert ada.get(f"{address}/files/{name}").status_code == 404


def test_a_share_link_shows_one_job_until_it_is_revoked(
    installation: Installation, member: User, server: Server, ada: Browser
) -> None:
    job = add_job(installation, member, status="running")
    address = f"/api/jobs/{job.id}/shares"
    made = ada.post(address).json()
    secret = made["link"].partition("#token=")[2]
    stranger = server.browser()
    shown = stranger.get("/api/shared/job", headers={"X-Share-Token": secret})
    assert (shown.status_code, shown.json()["id"]) == (200, str(job.id))
    data = shown.json()["config"]["data"]
    assert (data["train_path"], data["eval_path"]) == (None, None), (
        "paths of the server are nobody's business"
    )
    assert stranger.get("/api/shared/metrics", headers={"X-Share-Token": secret}).json()["series"] == []
    opened = [event for event in installation.all(AuditEvent) if event.action == "share.opened"]
    assert [(event.subject, event.ip_address) for event in opened] == [
        (f"share:{made['share']['id']}", "testclient")
    ], "once, however often the page asks"
    assert secret not in installation.everything_stored()
    assert ada.delete(f"{address}/{made['share']['id']}").status_code == 204
    assert stranger.get("/api/shared/job", headers={"X-Share-Token": secret}).status_code == 404


def test_the_script_of_a_job_can_be_read(installation: Installation, member: User, ada: Browser) -> None:
    job = add_job(installation, member)
    files = ada.get(f"/api/jobs/{job.id}/script").json()
    compile(files["script"], "train.py", "exec")
    assert "gpubloom" in files["requirements"]
    assert '"train_path"' in files["config"]


def test_a_share_link_tells_nothing_of_the_server(
    installation: Installation, member: User, server: Server, ada: Browser
) -> None:
    message = "There is no file /home/ada/secret.txt."
    stage = {"name": "packages", "state": "failed", "text": message}
    job = add_job(
        installation,
        member,
        status="failed",
        error_message=message,
        summary={
            "error": {"message": message},
            "waiting": message,
            "start": {
                "failure": message,
                "stages": [stage],
                "log": [{"stage": "console", "text": f"export TOKEN=abc; {message}"}],
            },
            "cost": {"so_far": 1.5, "detail": message, "page": "https://example.com/home/ada"},
            "marks": [{"kind": "resumed", "step": 5}, {"kind": "budget", "sentence": "80 % of /home/ada"}],
            "processes": {"ranks": [{"rank": 0, "host": "/home/ada"}]},
        },
        config={"data": {"train_path": "/nowhere"}, "model": {"path": "/home/ada/models/llama"}},
        budget=12.5,
    )
    secret = ada.post(f"/api/jobs/{job.id}/shares").json()["link"].partition("#token=")[2]
    shown = server.browser().get("/api/shared/job", headers={"X-Share-Token": secret})
    assert "/home/ada" not in shown.text
    assert "/nowhere" not in shown.text
    assert "TOKEN" not in shown.text
    assert shown.json()["config"]["model"]["path"] == "llama"
    assert shown.json()["budget"] is None
    summary = shown.json()["summary"]
    assert (summary["cost"]["so_far"], [mark["kind"] for mark in summary["marks"]]) == (1.5, ["resumed"])


def test_a_share_link_ends_with_the_account_of_its_owner(
    installation: Installation, member: User, server: Server, ada: Browser
) -> None:
    job = add_job(installation, member, status="running")
    secret = ada.post(f"/api/jobs/{job.id}/shares").json()["link"].partition("#token=")[2]
    visitor = server.browser()
    visitor.headers["X-Share-Token"] = secret
    assert visitor.get("/api/shared/job").status_code == 200
    installation.change(member, disabled=True)
    for address in ("/api/shared/job", "/api/shared/metrics"):
        assert visitor.get(address).json()["code"] == "link_invalid"


def test_totals_count_what_is_there(installation: Installation, member: User, ada: Browser) -> None:
    project = add_project(installation, member)
    for status in ("running", "queued", "completed", "completed", "failed"):
        add_job(installation, member, project_id=project.id, status=status)
    totals = ada.get("/api/jobs/totals").json()
    assert (totals["running"], totals["queued"], totals["completed"], totals["failed"]) == (1, 1, 2, 1)
