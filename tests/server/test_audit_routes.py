"""Every route that changes something leaves an entry in the audit log, or says here why it does not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pyotp
import pytest
from pydantic import SecretStr

from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import Checkpoint, JobShare
from gpubloom.server.ml_jobs import service as ml_jobs
from gpubloom.server.rentals import bucket_routes
from gpubloom.server.rentals.tables import Budget, ProviderCredit
from tests.chat_endpoint import serving
from tests.server.bringing import announce, inspected, on_sqlite
from tests.server.datasets.test_documents import upload_documents
from tests.server.datasets.test_questions import TEXT
from tests.server.installation import PASSWORD, Browser, Installation, Server
from tests.server.jobs.recorded import add_dataset, add_job, add_model, add_project, add_training
from tests.server.rentals.conftest import service  # noqa: F401 - a fixture
from tests.server.rentals.machines import add_artifact
from tests.server.routes import addresses
from tests.server.test_passkeys import ORIGIN, add_passkey, sign_in
from tests.server.test_pictures import image_file, upload
from tests.worker.remote.toy_provider import KEY, ToyService

NEW_PASSWORD = "another walk in that garden"
PROJECT = {"name": "Bloom", "modelArchitecture": "custom", "modelSize": 1}

_COMPUTES = "computes an answer and stores nothing"
_SAYS_NOTHING = "answers alike for everybody and sends at most an email; the use of its link is recorded"
_PIECES = "one piece of an upload whose announcement is recorded"
_USES = "use of a model that was started with an entry; prompts are nobody's business"
_CHALLENGE = "hands out a challenge; the answer to it is recorded"
_GONE = "an address of an earlier version: always an error"

# A line here is a decision: what the route does is not worth an entry.
_VIEW = "changes how a person's own list looks"
NOT_RECORDED = {
    ("POST", "/api/run-views"): _VIEW,
    ("PUT", "/api/run-views/{view_id}"): _VIEW,
    ("DELETE", "/api/run-views/{view_id}"): _VIEW,
    ("PATCH", "/api/runs/{run_id}"): "changes tags and notes, which no other route reads",
    ("POST", "/api/alert-channels/{channel_id}/test"): "sends one message to a channel that is recorded",
    ("POST", "/api/datasets/{dataset_id}/questions/estimate"): _COMPUTES,
    ("POST", "/api/sent-runs/batches"): "comes every few seconds; the run is recorded when it is announced",
    ("POST", "/api/auth/verify/resend"): _SAYS_NOTHING,
    ("POST", "/api/auth/password/forgot"): _SAYS_NOTHING,
    ("POST", "/api/auth/password/strength"): _COMPUTES,
    ("POST", "/api/auth/passkey/options"): _CHALLENGE,
    ("POST", "/api/me/passkeys/options"): _CHALLENGE,
    ("POST", "/api/me/confirm/passkey-options"): _CHALLENGE,
    ("POST", "/api/me/linked-accounts"): "names the page of a provider; coming back from it is recorded",
    ("POST", "/api/me/totp"): "makes a secret that counts once it is enabled, which is recorded",
    ("PATCH", "/api/datasets/{dataset_id}/content"): _PIECES,
    ("PATCH", "/api/models/{model_id}/files/{path}"): _PIECES,
    ("POST", "/api/models/{model_id}/check"): "reads the files of a model again",
    ("POST", "/api/providers/{provider}/check"): "asks a provider whether it still accepts the credentials",
    ("POST", "/api/storage-bucket/check"): "asks a bucket whether it still accepts the key",
    ("PUT", "/api/run-files/{path:path}"): "one batch of a rented job whose start is recorded",
    ("POST", "/api/plan"): _COMPUTES,
    ("POST", "/api/preflight"): _COMPUTES,
    ("POST", "/api/plan/script"): _COMPUTES,
    ("POST", "/api/requirements"): _COMPUTES,
    ("POST", "/api/scripts/to-notebook"): _COMPUTES,
    ("POST", "/api/scripts/from-notebook"): _COMPUTES,
    ("POST", "/api/scripts/colab-notebook"): _COMPUTES,
    ("POST", "/api/ml-jobs/quote"): _COMPUTES,
    ("POST", "/api/offers"): _COMPUTES,
    ("POST", "/api/playground/{job_id}/v1/chat/completions"): _USES,
    ("POST", "/api/playground/{job_id}/v1/completions"): _USES,
    ("POST", "/v1/chat/completions"): _USES,
    ("POST", "/v1/completions"): _USES,
    **{(method, "/api/training-jobs/{path:path}"): _GONE for method in ("DELETE", "PATCH", "POST", "PUT")},
}


@dataclass
class World:
    """A server with a member and an admin, both signed in."""

    server: Server
    installation: Installation
    member: User
    ada: Browser
    boss: Browser

    def job(self, **fields: Any) -> str:
        return f"/api/jobs/{add_job(self.installation, self.member, **fields).id}"

    def remove_credit(self) -> Any:
        self.installation.add(
            ProviderCredit(user_id=self.member.id, provider="modal", amount=5.0, stated_at=now())
        )
        return self.ada.delete("/api/credits/modal")

    def channel(self) -> str:
        made = self.ada.post("/api/alert-channels", json={"kind": "email", "name": "Mail"})
        return f"/api/alert-channels/{made.json()['id']}"

    def passages(self) -> str:
        dataset_id = upload_documents(self.ada, "pumps.md", TEXT.encode(), passage_characters=200)
        inspected(self.server, self.ada, dataset_id)
        return f"/api/datasets/{dataset_id}"

    def order_questions(self, endpoint: str, **more: Any) -> Any:
        body = {"endpoint": endpoint, "model": "writer", "pairs": 1, **more}
        return self.ada.post(f"{self.passages()}/questions", json=body)

    def stop_questions(self) -> Any:
        with serving() as endpoint:
            made = self.order_questions(endpoint.address).json()
            return self.ada.post(f"/api/datasets/{made['id']}/questions/stop")

    def continue_questions(self) -> Any:
        with serving() as endpoint:
            endpoint.usage = None
            made = self.order_questions(endpoint.address, most_tokens=2_500).json()
            inspected(self.server, self.ada, made["id"])
            return self.ada.post(f"/api/datasets/{made['id']}/questions/continue", json={})

    def remove_secret(self) -> Any:
        self.ada.put("/api/secrets/HF_TOKEN", json={"value": "x"})
        return self.ada.delete("/api/secrets/HF_TOKEN")

    def remove_picture(self) -> Any:
        upload(self.ada, image_file())
        return self.ada.delete("/api/me/picture")

    def create_address(self) -> Any:
        job = self.job()
        kept = add_artifact(self.installation, UUID(job.rpartition("/")[2]))
        # Signing asks no bucket, so this one need not be there.
        bucket = {"storage_bucket": "b", "storage_key": "k", "storage_secret": SecretStr("s")}
        state = self.server.app.state
        state.settings = state.settings.model_copy(update=bucket)
        return self.ada.post(f"{job}/stored-artifacts/{kept}/address", json={})

    def training(self) -> str:
        return f"/api/jobs/{add_training(self.installation, self.member).id}"

    def failed_download(self) -> str:
        fields = {"source": "hub", "status": "failed", "check": None}
        return f"/api/models/{add_model(self.installation, self.member, **fields).id}"

    def whole_model(self) -> str:
        """A training that has weights."""
        job = add_training(self.installation, self.member)
        (self.installation.home / "runs" / str(job.id) / "model/model.safetensors").write_bytes(b"weights")
        return f"/api/jobs/{job.id}"

    def checkpoint(self) -> str:
        """A checkpoint of a paused job, with its folder."""
        job = add_job(self.installation, self.member, status="paused")
        (self.installation.home / "runs" / str(job.id) / "checkpoints/step-00000010").mkdir(parents=True)
        path = "checkpoints/step-00000010"
        row = Checkpoint(
            id=uuid4(), job_id=job.id, attempt=1, step=10, path=path, metrics={}, best=False, saved_at=now()
        )
        return f"/api/jobs/{job.id}/checkpoints/{self.installation.add(row).id}"

    def project(self) -> str:
        return f"/api/projects/{add_project(self.installation, self.member).id}"

    def corpus(self) -> dict[str, Any]:
        (self.installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 900)
        project = add_project(self.installation, self.member, training_data_path="corpus.txt")
        return {"project_id": str(project.id), "config": {"batch_size": 2}}

    def share(self) -> str:
        job = add_job(self.installation, self.member)
        share = self.installation.add(JobShare(id=uuid4(), job_id=job.id, fingerprint="0" * 64))
        return f"/api/jobs/{job.id}/shares/{share.id}"

    def verify(self) -> Any:
        self.installation.add_user("Eve", verified=False)
        token = self.installation.add_link("verify", "eve@example.org")
        return self.server.stranger.post("/api/auth/verify", json={"token": token, "password": PASSWORD})

    def set_up(self) -> Any:
        with self.installation.session() as session:
            session.query(User).delete()
        body = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD}
        token = self.installation.add_link("setup", "setup")
        return self.server.stranger.post("/api/auth/setup", json={**body, "token": token})

    def invite(self) -> dict[str, Any]:
        answer = self.boss.post("/api/invitations", json={"email": "eve@example.org"})
        assert answer.status_code == 201, answer.text
        invitation: dict[str, Any] = answer.json()
        return invitation

    def sign_up(self) -> Any:
        token = self.invite()["link"].partition("#invite=")[2]
        body = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD, "invitation": token}
        return self.server.stranger.post("/api/auth/sign-up", json=body)

    def reset(self) -> Any:
        token = self.installation.add_link("reset", self.member.email)
        body = {"token": token, "password": NEW_PASSWORD}
        return self.server.stranger.post("/api/auth/password/reset", json=body)

    def enable_totp(self) -> Any:
        secret = self.ada.post("/api/me/totp").json()["secret"]
        return self.ada.post("/api/me/totp/enable", json={"code": pyotp.TOTP(secret).now()})

    def second_factor(self) -> Any:
        code = self.enable_totp().json()["recovery_codes"][0]
        browser = self.server.browser()
        browser.post("/api/auth/sign-in", json={"email": self.member.email, "password": PASSWORD})
        return browser.post("/api/auth/second-factor", json={"code": code})

    def with_totp(self, method: str, address: str) -> Any:
        assert self.enable_totp().status_code == 200
        return self.ada.request(method, address)

    def passkey(self) -> str:
        return f"/api/me/passkeys/{add_passkey(self.ada)[1].json()['passkey']['id']}"

    def linked_account(self) -> str:
        row = LinkedAccount(id=uuid4(), user_id=self.member.id, provider="github", provider_account_id="1")
        return f"/api/me/linked-accounts/{self.installation.add(row).id}"

    def connect(self) -> Any:
        return self.ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})

    def set_bucket(self) -> Any:
        body = {"bucket": "b", "access_key": "k", "secret_key": "s"}
        with pytest.MonkeyPatch.context() as patch:
            # What is tested live is tested elsewhere (`rentals/test_storage_bucket.py`).
            patch.setattr(bucket_routes, "check_bucket", lambda open_store: [])
            return self.boss.put("/api/storage-bucket", json=body)

    def remove_bucket(self) -> Any:
        self.set_bucket()
        return self.boss.delete("/api/storage-bucket")

    def disconnect(self) -> Any:
        self.connect()
        return self.ada.delete("/api/providers/toy/credentials")


# How each route is called so that it succeeds.
RECORDED: dict[tuple[str, str], Callable[[World], Any]] = {
    ("POST", "/api/alert-channels"): lambda w: w.ada.post(
        "/api/alert-channels", json={"kind": "email", "name": "Mail"}
    ),
    ("PATCH", "/api/alert-channels/{channel_id}"): lambda w: w.ada.patch(w.channel(), json={"name": "Post"}),
    ("DELETE", "/api/alert-channels/{channel_id}"): lambda w: w.ada.delete(w.channel()),
    ("POST", "/api/datasets/from-documents"): lambda w: w.ada.post(
        "/api/datasets/from-documents", json={"filename": "pumps.md", "size": 10}
    ),
    ("POST", "/api/datasets/{dataset_id}/passages"): lambda w: w.ada.post(
        f"{w.passages()}/passages", json={"passage_characters": 300}
    ),
    ("POST", "/api/datasets/{dataset_id}/questions"): lambda w: w.order_questions(
        "https://writer.example.org/v1"
    ),
    ("POST", "/api/datasets/{dataset_id}/questions/stop"): World.stop_questions,
    ("POST", "/api/datasets/{dataset_id}/questions/continue"): World.continue_questions,
    ("POST", "/api/auth/setup"): World.set_up,
    ("POST", "/api/auth/sign-up"): World.sign_up,
    ("POST", "/api/auth/verify"): World.verify,
    ("POST", "/api/auth/sign-in"): lambda w: w.server.stranger.post(
        "/api/auth/sign-in", json={"email": w.member.email, "password": PASSWORD}
    ),
    ("POST", "/api/auth/password/reset"): World.reset,
    ("POST", "/api/auth/second-factor"): World.second_factor,
    ("POST", "/api/auth/passkey"): lambda w: sign_in(w.server.browser(), add_passkey(w.ada)[0]),
    ("POST", "/api/me/totp/enable"): World.enable_totp,
    ("DELETE", "/api/me/totp"): lambda w: w.with_totp("DELETE", "/api/me/totp"),
    ("POST", "/api/me/recovery-codes"): lambda w: w.with_totp("POST", "/api/me/recovery-codes"),
    ("POST", "/api/me/passkeys"): lambda w: add_passkey(w.ada)[1],
    ("PATCH", "/api/me/passkeys/{passkey_id}"): lambda w: w.ada.patch(w.passkey(), json={"name": "key"}),
    ("DELETE", "/api/me/passkeys/{passkey_id}"): lambda w: w.ada.delete(w.passkey()),
    ("DELETE", "/api/me/linked-accounts/{link_id}"): lambda w: w.ada.delete(w.linked_account()),
    ("POST", "/api/me/confirm"): lambda w: w.ada.post("/api/me/confirm", json={"password": PASSWORD}),
    ("POST", "/api/auth/sign-out"): lambda w: w.ada.post("/api/auth/sign-out"),
    ("PATCH", "/api/me"): lambda w: w.ada.patch("/api/me", json={"name": "Lovelace"}),
    ("PUT", "/api/me/picture"): lambda w: upload(w.ada, image_file()),
    ("DELETE", "/api/me/picture"): World.remove_picture,
    ("POST", "/api/me/password"): lambda w: w.ada.post(
        "/api/me/password", json={"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    ),
    ("DELETE", "/api/me/sessions"): lambda w: w.ada.delete("/api/me/sessions"),
    ("DELETE", "/api/me/sessions/{session_id}"): lambda w: w.ada.delete(
        f"/api/me/sessions/{w.installation.add_session(w.member)[1].id}"
    ),
    ("POST", "/api/me/tokens"): lambda w: w.ada.post(
        "/api/me/tokens", json={"name": "x", "scopes": ["read"]}
    ),
    ("DELETE", "/api/me/tokens/{token_id}"): lambda w: w.ada.delete(
        f"/api/me/tokens/{w.installation.add_token(w.member)[1].id}"
    ),
    ("PUT", "/api/me/hub-token"): lambda w: w.ada.put("/api/me/hub-token", json={"token": "hf_" + "a" * 34}),
    ("DELETE", "/api/me/hub-token"): lambda w: w.ada.delete("/api/me/hub-token"),
    ("PUT", "/api/secrets/{name}"): lambda w: w.ada.put("/api/secrets/HF_TOKEN", json={"value": "x"}),
    ("DELETE", "/api/secrets/{name}"): World.remove_secret,
    ("POST", "/api/projects"): lambda w: w.ada.post("/api/projects", json=PROJECT),
    ("PUT", "/api/projects/{project_id}"): lambda w: w.ada.put(w.project(), json=PROJECT),
    ("PATCH", "/api/projects/{project_id}"): lambda w: w.ada.patch(w.project(), json={"name": "New"}),
    ("DELETE", "/api/projects/{project_id}"): lambda w: w.ada.delete(w.project()),
    ("POST", "/api/datasets"): lambda w: w.ada.post("/api/datasets", json={"filename": "a.csv", "size": 9}),
    ("POST", "/api/datasets/from-hub"): lambda w: w.ada.post(
        "/api/datasets/from-hub", json={"repository": "org/name"}
    ),
    ("PATCH", "/api/datasets/{dataset_id}"): lambda w: w.ada.patch(
        f"/api/datasets/{announce(w.ada, 'a.csv', 9)['id']}", json={"name": "New"}
    ),
    ("DELETE", "/api/datasets/{dataset_id}"): lambda w: w.ada.delete(
        f"/api/datasets/{add_dataset(w.installation, w.member).id}"
    ),
    ("POST", "/api/models"): lambda w: w.ada.post(
        "/api/models", json={"source": "hub", "repository": "org/name"}
    ),
    ("POST", "/api/models/{model_id}/fetch"): lambda w: w.ada.post(f"{w.failed_download()}/fetch"),
    ("DELETE", "/api/models/{model_id}"): lambda w: w.ada.delete(
        f"/api/models/{add_model(w.installation, w.member).id}"
    ),
    ("POST", "/api/jobs"): lambda w: w.ada.post("/api/jobs", json=w.corpus()),
    ("PUT", "/api/sent-runs"): lambda w: w.ada.put(
        "/api/sent-runs", json={"id": str(uuid4()), "project": "P", "name": "n"}
    ),
    ("POST", "/api/training-jobs"): lambda w: w.ada.post(
        "/api/training-jobs", json={"projectId": w.corpus()["project_id"], "config": {"batchSize": 2}}
    ),
    ("POST", "/api/jobs/{job_id}/pause"): lambda w: w.ada.post(f"{w.job(status='running')}/pause"),
    ("POST", "/api/jobs/{job_id}/resume"): lambda w: w.ada.post(f"{w.job(status='paused')}/resume"),
    ("POST", "/api/jobs/{job_id}/cancel"): lambda w: w.ada.post(f"{w.job(status='queued')}/cancel"),
    ("POST", "/api/jobs/{job_id}/extend"): lambda w: w.ada.post(
        f"{w.job(status='completed')}/extend", json={"epochs": 99}
    ),
    ("POST", "/api/jobs/{job_id}/save"): lambda w: w.ada.post(f"{w.job(status='running')}/save"),
    ("PATCH", "/api/jobs/{job_id}/settings"): lambda w: w.ada.patch(
        f"{w.job(status='running')}/settings", json={"learning_rate": 0.001}
    ),
    ("DELETE", "/api/jobs/{job_id}"): lambda w: w.ada.delete(w.job(status="completed")),
    ("POST", "/api/jobs/{job_id}/evaluations"): lambda w: w.ada.post(
        f"{w.training()}/evaluations", json={"prompts": ["Who?"]}
    ),
    ("POST", "/api/jobs/{job_id}/base-model"): lambda w: w.ada.post(f"{w.whole_model()}/base-model"),
    ("POST", "/api/jobs/{job_id}/exports"): lambda w: w.ada.post(
        f"{w.training()}/exports", json={"form": "gguf"}
    ),
    ("DELETE", "/api/jobs/{job_id}/checkpoints/{checkpoint_id}"): lambda w: w.ada.delete(w.checkpoint()),
    ("POST", "/api/jobs/{job_id}/checkpoints/{checkpoint_id}/resume"): lambda w: w.ada.post(
        f"{w.checkpoint()}/resume"
    ),
    ("POST", "/api/jobs/{job_id}/checkpoints/{checkpoint_id}/branch"): lambda w: w.ada.post(
        f"{w.checkpoint()}/branch", json={}
    ),
    ("POST", "/api/jobs/{job_id}/shares"): lambda w: w.ada.post(f"{w.job()}/shares"),
    ("DELETE", "/api/jobs/{job_id}/shares/{share_id}"): lambda w: w.ada.delete(w.share()),
    ("POST", "/api/jobs/{job_id}/move"): lambda w: w.ada.post(
        f"{w.job(status='paused', kind='script')}/move", json={}
    ),
    ("POST", "/api/playground"): lambda w: w.ada.post(
        "/api/playground", json={"job_id": w.training().rpartition("/")[2]}
    ),
    ("POST", "/api/ml-jobs"): lambda w: w.ada.post(
        "/api/ml-jobs", json={"provider": "local", "files": [{"path": "train.py", "text": "print(1)"}]}
    ),
    ("PUT", "/api/providers/{provider}/credentials"): World.connect,
    ("DELETE", "/api/providers/{provider}/credentials"): World.disconnect,
    ("PUT", "/api/storage-bucket"): World.set_bucket,
    ("DELETE", "/api/storage-bucket"): World.remove_bucket,
    ("POST", "/api/providers/reconcile"): lambda w: w.ada.post("/api/providers/reconcile"),
    ("PUT", "/api/budgets"): lambda w: w.ada.put("/api/budgets", json={"scope": "user", "limit": 5}),
    ("DELETE", "/api/budgets/{budget_id}"): lambda w: w.ada.delete(
        f"/api/budgets/{w.installation.add(Budget(id=uuid4(), user_id=w.member.id, amount=1.0)).id}"
    ),
    ("PUT", "/api/credits/{provider}"): lambda w: w.ada.put("/api/credits/modal", json={"amount": 5}),
    ("DELETE", "/api/credits/{provider}"): World.remove_credit,
    ("POST", "/api/jobs/{job_id}/stored-artifacts/{artifact_id}/address"): World.create_address,
    ("PATCH", "/api/users/{user_id}"): lambda w: w.boss.patch(
        f"/api/users/{w.member.id}", json={"disabled": True}
    ),
    ("DELETE", "/api/invitations/{invitation_id}"): lambda w: w.boss.delete(
        f"/api/invitations/{w.invite()['id']}"
    ),
    ("POST", "/api/invitations"): lambda w: w.boss.post("/api/invitations", json={"email": "j@example.org"}),
}


@pytest.fixture
def world(
    installation: Installation,
    service: ToyService,  # noqa: F811
    admin: User,
    member: User,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    monkeypatch.setattr(ml_jobs, "why_no_sandbox", lambda: None)
    # Passkeys need a host name.
    with installation.serve(public_url=ORIGIN) as server:
        yield World(server, installation, member, server.signed_in(member), server.signed_in(admin))


def test_every_route_that_changes_something_is_decided_about(sqlite_server: Server) -> None:
    changing = {
        (address.method, address.path)
        for address in addresses(sqlite_server.app)
        if address.method not in {"GET", "HEAD", "WEBSOCKET"}
    }
    assert changing - RECORDED.keys() - NOT_RECORDED.keys() == set(), "drive it in RECORDED, or say why not"
    assert not RECORDED.keys() & NOT_RECORDED.keys()
    assert (RECORDED.keys() | NOT_RECORDED.keys()) - changing == set(), "these routes are gone"


@on_sqlite
@pytest.mark.parametrize("route", RECORDED, ids=" ".join)
def test_a_route_that_changes_something_leaves_an_entry(world: World, route: tuple[str, str]) -> None:
    before = {event.id for event in world.installation.all(AuditEvent)}
    answer = RECORDED[route](world)
    assert answer.status_code < 300, answer.text
    entries = [event for event in world.installation.all(AuditEvent) if event.id not in before]
    assert entries, f"{' '.join(route)} left nothing in the audit log"
    assert all(event.ip_address == "testclient" for event in entries)


@on_sqlite
def test_downloads_are_recorded_once_however_many_parts_they_have(world: World) -> None:
    address = world.training()
    assert world.ada.get(f"{address}/model/archive").status_code == 200
    later = world.ada.get(f"{address}/model/archive", headers={"Range": "bytes=512-"})
    assert later.status_code == 206
    assert world.ada.get(f"{address}/model/files/config.json").status_code == 200
    assert world.ada.get(f"{address}/model/files/none.json").status_code == 404
    dataset = add_dataset(world.installation, world.member)
    assert world.ada.get(f"/api/datasets/{dataset.id}/converted").status_code == 200
    stored = world.installation.all(AuditEvent)
    entries = sorted(stored, key=lambda event: event.sequence or 0)
    assert [(event.action, event.details.get("file")) for event in entries] == [
        ("training_job.downloaded", "model/archive"),
        ("training_job.downloaded", "model/files/config.json"),
        ("dataset.downloaded", None),
    ]
    assert entries[0].project_id is not None
