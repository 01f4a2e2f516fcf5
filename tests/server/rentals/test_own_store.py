"""Providers that bring a store of their own: nothing is set up for it, and what stays is cleared away."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.providers import registry
from gpubloom.server.accounts.tables import User
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.tables import Installation as InstallationRow
from tests.providers.services.modal_service import ModalService
from tests.server.installation import Browser, Installation, Server
from tests.worker.remote.toy_provider import KEY, ToyService

SCRIPT: dict[str, Any] = {
    "files": [{"path": "train.py", "text": "import torch\nprint('hello')\n"}],
    "entry": "train.py",
    "offer": {"provider": "modal", "gpu": "T4", "kind": "per_second"},
}

pytestmark = pytest.mark.xdist_group("modal")


@pytest.fixture(scope="module")
def modal_service() -> Iterator[ModalService]:
    with ModalService() as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(service.environment.items())))
        yield service


@pytest.fixture
def ada(server: Server, member: User, modal_service: ModalService) -> Browser:
    browser = server.signed_in(member)
    connected = browser.put("/api/providers/modal/credentials", json={"values": modal_service.credentials})
    assert connected.status_code == 200, connected.text
    return browser


def test_a_modal_key_is_all_that_a_job_needs_and_its_store_is_shown_everywhere(ada: Browser) -> None:
    found = ada.get("/api/providers").json()
    modal = next(item for item in found["items"] if item["name"] == "modal")
    assert (modal["store"]["name"], found["storage"]) == ("volume", {"ready": True, "reason": None})
    asked = {"needs": {"memory_gb": 10, "hours": 1}, "constraints": {"providers": ["modal", "paperspace"]}}
    offers = ada.post("/api/offers", json=asked).json()["offers"]
    assert {offer["store"]["name"] for offer in offers if offer["provider"] == "modal"} == {"volume"}
    assert {offer["store"] for offer in offers if offer["provider"] == "paperspace"} == {None}
    quote = ada.post("/api/ml-jobs/quote", json=SCRIPT).json()
    assert (quote["store"]["title"], quote["problem"]) == ("Modal Volume", None)
    started = ada.post("/api/ml-jobs", json=SCRIPT).json()
    job = ada.get(f"/api/jobs/{started['job_id']}").json()
    assert job["offer"]["store"]["name"] == "volume"


def test_a_connected_provider_without_a_store_is_named_with_the_next_step(
    server: Server, member: User, service: ToyService
) -> None:
    browser = server.signed_in(member)
    assert browser.get("/api/providers").json()["storage"]["ready"] is True
    browser.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    storage = browser.get("/api/providers").json()["storage"]
    assert storage["ready"] is False
    title = registry.provider_spec("toy").title
    assert f"Machines of {title} cannot exchange files" in storage["reason"]
    assert "bloom providers storage set" in storage["reason"]


def test_volumes_of_ended_jobs_are_deleted_and_all_others_stay(
    ada: Browser, installation: Installation, modal_service: ModalService
) -> None:
    started = ada.post("/api/ml-jobs", json=SCRIPT).json()

    def volume(name: str, job_id: UUID) -> str:
        return str(MachineKey(name, job_id, 1)).removesuffix("-a1")

    name = installation.all(InstallationRow)[0].id.hex[:8]
    ended, living = volume(name, uuid4()), volume(name, UUID(started["job_id"]))
    modal_service.volumes.names.clear()
    others = ["my-data", volume("0" * 8, uuid4())]
    for each in (ended, living, *others):
        modal_service.volumes.create(each, modal_service.new_identifier("vo"))
    assert ada.post("/api/providers/reconcile").status_code == 200
    assert set(modal_service.volumes.names) == {living, *others}
