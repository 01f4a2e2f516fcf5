"""Scripts for rented machines: the recommended offer that can be taken, its reasons and its cost."""

from typing import Any
from uuid import UUID

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.launcher import prefetch_of
from tests.server.installation import Browser, Installation, Server
from tests.server.rentals.conftest import renting, service  # noqa: F401 - pytest finds fixtures by name
from tests.worker.remote.toy_provider import KEY

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
SCRIPT = "import torch\nmax_iters = 500\nbatch_size = 8\nmodel = torch.nn.Linear(8, 8).cuda()\n"


@pytest.fixture
def ada(renting: Server, member: User) -> Browser:  # noqa: F811
    return renting.signed_in(member)


def connect(browser: Browser) -> None:
    answer = browser.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    assert answer.status_code == 200, answer.text


def post(browser: Browser, address: str = "/api/ml-jobs", **body: Any) -> Any:
    return browser.post(address, json={"code": SCRIPT, **body})


def test_the_recommended_offer_is_taken_once_it_is_connected(
    installation: Installation, ada: Browser
) -> None:
    assert post(ada, "/api/ml-jobs/quote").json()["provider"] == "local"
    connect(ada)
    quote = post(ada, "/api/ml-jobs/quote").json()
    assert quote["offer"] == {
        "provider": "toy",
        "gpu": "A100",
        "gpus": 1,
        "kind": "on_demand",
        "region": None,
    }
    assert (
        0
        < quote["estimated_cost"]["low"]
        <= quote["estimated_cost"]["likely"]
        <= quote["estimated_cost"]["high"]
    )
    started = post(ada, budget=3.0, max_hours=1.5, network=True, packages=["torch", "numpy"])
    assert started.status_code == 201, started.text
    assert started.json()["provider"] == "toy"
    assert started.json()["estimated_cost"] == quote["estimated_cost"]
    assert started.json()["reasons"]
    job = installation.get(TrainingJob, UUID(started.json()["job_id"]))
    assert job is not None
    assert (job.kind, job.target, job.gpus, job.budget, job.max_hours) == ("script", "toy", 0, 3.0, 1.5)
    assert job.offer is not None
    assert (job.offer["provider"], job.offer["gpu"], job.offer["hourly"]) == ("toy", "A100", 1.5)
    assert job.offer["estimate"]["likely"] == pytest.approx(quote["estimated_cost"]["likely"], rel=0.01)
    assert job.config["packages"] == ["torch", "numpy"]
    status = ada.get(started.json()["status_url"]).json()
    assert (status["provider"], status["estimated_total"]) == ("toy", job.offer["estimate"]["likely"])


def test_the_job_keeps_what_its_script_loads_from_the_hub(installation: Installation, ada: Browser) -> None:
    connect(ada)
    loads = (
        "from datasets import load_dataset\nfrom transformers import AutoModelForCausalLM\n"
        'data = load_dataset("glue", "sst2")\n'
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()\n'
        'other = AutoModelForCausalLM.from_pretrained("./mine")\n'
    )
    started = ada.post("/api/ml-jobs", json={"code": loads, "provider": "toy", "datasets": ["shakespeare"]})
    assert started.status_code == 201, started.text
    job = installation.get(TrainingJob, UUID(started.json()["job_id"]))
    assert job is not None
    prefetch = prefetch_of(job)
    assert prefetch.models == ("Qwen/Qwen2.5-0.5B",)
    assert prefetch.datasets == (("glue", "sst2"),)
    (address,) = prefetch.addresses
    assert address.startswith("https://")
    assert address.endswith("/tinyshakespeare/input.txt")


def test_an_offer_is_taken_as_it_was_quoted_and_another_is_refused(ada: Browser) -> None:
    connect(ada)
    offer = post(ada, "/api/ml-jobs/quote", provider="toy").json()["offer"]
    assert post(ada, offer=offer).json()["provider"] == "toy"
    problem = post(ada, offer={**offer, "gpu": "H100"})
    assert problem.status_code == 422
    nothing = post(ada, constraints={"max_cost": 0.0})
    assert nothing.json()["errors"][0]["code"] == "no_offer"
