"""Two tenants of one installation: Ada with every kind of file the product keeps, and Eve who wants them.

Whatever Ada has carries a marker, in its name or in its bytes, so that a test can look for it in any answer.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from sqlalchemy import MetaData, create_engine, make_url, select
from sqlalchemy.pool import NullPool

from gpubloom.scripts.task import ScriptTask
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.files import note_brought
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.traincard import Reporter
from tests.server.bringing import announce, send
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_dataset, add_job, add_model, add_project, add_training
from tests.server.rentals.machines import add_artifact

# Of names, which a share link may show, and of bytes, which it may not.
NAME = "owned-by-ada"
BYTES = "ada-bytes-5d1e"
# Where a run directory holds files: everything that a training, a task, a script or its agent writes.
RUN_FILES = (
    "config.json",
    "plan.json",
    "train.py",
    "requirements.txt",
    "result.json",
    "brought.json",
    "logs/output.log",
    "logs/output.1.log",
    "agent/agent.log",
    "checkpoints/step-00000010/model.safetensors",
    "checkpoints/step-00000010/optimizer.safetensors",
    "media/step-00000010/sample.png",
    "model/config.json",
    "model/adapter_config.json",
    "model/adapter_model.safetensors",
    "model/model-q4_0.gguf",
)
WORK_FILES = ("work/train.py", "work/out/weights.bin", "work/out/notes.txt")

# What an inspection says besides its mapping and its problems.
REPORT = {
    "kind": "jsonl",
    "encoding": "utf-8",
    "notes": [],
    "rows": 1,
    "blank_lines": 0,
    "columns": [],
    "detection": {"mapping": None, "confidence": 1.0, "reason": "-"},
    "lengths": None,
    "duplicates": None,
}


@dataclass
class Tenant:
    """A person, a browser of theirs, and the ids of what they have, by the names that routes give them."""

    user: User
    browser: Browser
    ids: dict[str, str] = field(default_factory=dict)
    training: str = ""
    script: str = ""
    export: str = ""
    unfinished_dataset: str = ""
    # Passages of documents, and questions about them.
    passages: str = ""
    questions: str = ""
    unfinished_model: str = ""
    share_secret: str = ""

    def folders(self, home: Path) -> list[Path]:
        """Where the bytes of this person lie."""
        runs = (self.training, self.script, self.export)
        datasets = (self.ids["dataset_id"], self.unfinished_dataset, self.passages, self.questions)
        models = (self.ids["model_id"], self.unfinished_model)
        return [
            *(home / "runs" / one for one in runs),
            *(home / "datasets" / one for one in datasets),
            *(home / "models" / one for one in models),
        ]


def make_tenant(server: Server, installation: Installation, name: str, *, label: str, content: str) -> Tenant:
    """Somebody who has one of everything. `label` is in all their names, `content` in all their files."""
    user = installation.add_user(name)
    tenant = Tenant(user, server.signed_in(user))
    _add_jobs(installation, tenant, label, content)
    columns = {"prompt": "prompt", "completion": "completion"}
    report = {"mapping": {"format": "prompt_completion", "columns": columns}, "examples": 1}
    problems = {"rows_refused": 1, "remarks": 0, "kinds": {}, "first": []}
    dataset = add_dataset(
        installation,
        user,
        name=f"{label} dataset",
        filename=f"{label}.jsonl",
        report={**REPORT, **report, "problems": problems},
    )
    model = add_model(installation, user, name=f"{label} model", check=None)
    folder = installation.home / "datasets" / str(dataset.id)
    (folder / "data.jsonl").write_text(json.dumps({"prompt": content, "completion": content}) + "\n")
    refused = {"row": 1, "line": 1, "reason": content, "fatal": True}
    (folder / "problems.jsonl").write_text(json.dumps(refused) + "\n")
    (installation.home / "models" / str(model.id) / "model.safetensors").write_text(content)
    tenant.ids |= {
        "dataset_id": str(dataset.id),
        "eval_dataset_id": str(dataset.id),
        "model_id": str(model.id),
    }
    _upload_in_parts(tenant, label, content)
    _add_documents(installation, tenant, label, content)
    shared = tenant.browser.post(f"/api/jobs/{tenant.training}/shares").json()
    tenant.share_secret = shared["link"].partition("#token=")[2]
    tenant.ids["share_id"] = shared["share"]["id"]
    kept = add_artifact(installation, UUID(tenant.training), path=f"{label}/w.bin")
    tenant.ids["artifact_id"] = str(kept)
    return tenant


def _add_jobs(installation: Installation, tenant: Tenant, label: str, content: str) -> None:
    project = add_project(installation, tenant.user, name=f"{label} project")
    common = {"project_id": project.id, "status": "completed", "machine": "here"}
    training = add_training(installation, tenant.user, name=f"{label} training", **common)
    export = add_job(
        installation,
        tenant.user,
        name=f"{label} export",
        kind="export",
        parent_id=training.id,
        config={"kind": "export", "model": label, "device": "cpu", "form": "merged"},
        **common,
    )
    config = ScriptTask(arguments=(label,)).model_dump(mode="json")
    script = add_job(
        installation, tenant.user, name=f"{label} script", kind="script", config=config, **common
    )
    for job in (training, export, script):
        run_dir = installation.home / "runs" / str(job.id)
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            reporter.metrics({f"loss/{content}": 1.0}, step=1)
            reporter.log(content)
            reporter.sample(content, content, step=1)
            reporter.config({"prompt": content})
        for name in RUN_FILES:
            _write(run_dir / name, f"{content}\n")
        _write(run_dir / "config.json", json.dumps({"note": content}))
    run_dir = installation.home / "runs" / str(script.id)
    for name in WORK_FILES:
        _write(run_dir / name, f"# {content}\n")
    note_brought(run_dir, [run_dir / "work/train.py"])
    checkpoint = next(row for row in installation.all(Checkpoint) if row.job_id == training.id)
    tenant.training, tenant.script, tenant.export = str(training.id), str(script.id), str(export.id)
    tenant.ids |= {
        "user_id": str(tenant.user.id),
        "project_id": str(project.id),
        "job_id": str(training.id),
        "parent_id": str(training.id),
        "checkpoint_id": str(checkpoint.id),
        "other_checkpoint_id": str(checkpoint.id),
    }


def _add_documents(installation: Installation, tenant: Tenant, label: str, content: str) -> None:
    counts = {"files": 1, "problems": 0, "pages": 0, "passages": 1, "characters": len(content)}
    documents = {"filename": f"{label}.md", "size": 9, "passage_characters": 500, **counts}
    mapping = {"format": "text", "columns": {"text": "text"}}
    problems = {"rows_refused": 0, "remarks": 0, "kinds": {}, "first": []}
    report = {**REPORT, "mapping": mapping, "examples": 1, "problems": problems}
    common = {"name": f"{label} text", "filename": f"{label}.jsonl", "report": report}
    passages = add_dataset(
        installation, tenant.user, source="documents", documents=documents, format="text", **common
    )
    order = {"dataset_id": str(passages.id), "endpoint": f"https://{label}.example.org/v1", "model": label}
    limits = {"secret": None, "pairs": 1, "max_answer_tokens": 100, "most_tokens": 10_000, "playground": None}
    done = {
        "passages": 2,
        "passages_done": 1,
        "pairs_kept": 1,
        "rejected": 1,
        "tokens": 9,
        "end_reason": None,
    }
    questions = add_dataset(
        installation, tenant.user, source="questions", questions={**order, **limits, **done}, **common
    )
    tenant.passages, tenant.questions = str(passages.id), str(questions.id)
    source = {"file": content, "passage": 1, "page": None, "last_page": None, "heading": content}
    document = {"file": content, "size": 9, "notes": [], "code": None, "problem": None, **counts}
    for name in ("files", "problems"):
        del document[name]
    rows = {
        passages: {
            "data.jsonl": {"text": content, "source": source},
            "documents.jsonl": document,
            "text.txt": content,
            "documents.md": content,
        },
        questions: {
            "data.jsonl": {"text": content, "source": {**source, "text": content}},
            "rejected.jsonl": {"source": source, "reason": content, "text": content},
            "answers.jsonl": {"index": 0, "pairs": [], "rejected": [], "tokens": 9},
            "passages.jsonl": {"text": content, "source": source},
        },
    }
    for dataset, files in rows.items():
        folder = installation.home / "datasets" / str(dataset.id)
        for name, row in files.items():
            (folder / name).write_text((row if isinstance(row, str) else json.dumps(row)) + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _upload_in_parts(tenant: Tenant, label: str, content: str) -> None:
    """A dataset and a model of which half has arrived."""
    half = content.encode()
    dataset = announce(tenant.browser, f"{label} half.csv", 2 * len(half))
    assert send(tenant.browser, f"/api/datasets/{dataset['id']}/content", half).status_code == 204
    files = [{"path": name, "size": 2 * len(half)} for name in ("config.json", "model.safetensors")]
    answer = tenant.browser.post("/api/models", json={"source": "upload", "files": files, "name": label})
    assert answer.status_code == 201, answer.text
    address = f"/api/models/{answer.json()['id']}/files/config.json"
    assert send(tenant.browser, address, half).status_code == 204
    tenant.unfinished_dataset, tenant.unfinished_model = dataset["id"], answer.json()["id"]


def bytes_of(tenant: Tenant, home: Path) -> dict[str, str]:
    """Every file of a tenant: its mode, when it was changed, and a digest of its bytes."""
    found = {}
    for folder in tenant.folders(home):
        for path in sorted(folder.rglob("*")):
            facts = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = f"{facts.st_mode:o} {facts.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"
    assert len(found) > 3 * len(RUN_FILES)
    return found


def rows_about(tenant: Tenant, installation: Installation) -> set[str]:
    """The rows that mention the tenant or anything of theirs; what the audit log says is not among them."""
    url = make_url(installation.database_url)
    driver = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql+psycopg"
    engine = create_engine(url.set(drivername=driver), poolclass=NullPool)
    stored = MetaData()
    stored.reflect(engine)
    own = {str(tenant.user.id), tenant.script, tenant.export, *tenant.ids.values()}
    own |= {tenant.unfinished_dataset, tenant.unfinished_model, tenant.passages, tenant.questions}
    pattern = re.compile("|".join(sorted(one.replace("-", "") for one in own)))
    found = set()
    with engine.connect() as connection:
        for table in stored.sorted_tables:
            if table.name.startswith("audit"):
                continue
            rows = (repr(tuple(row)) for row in connection.execute(select(table)))
            found |= {f"{table.name} {row}" for row in rows if pattern.search(row.replace("-", ""))}
    engine.dispose()
    return found


def end_everything(installation: Installation, tenant: Tenant) -> None:
    """Let the jobs of a tenant be over, so that they can be deleted."""
    for job in installation.all(TrainingJob):
        if job.user_id == tenant.user.id:
            installation.change(job, status="cancelled", end_time=now())
