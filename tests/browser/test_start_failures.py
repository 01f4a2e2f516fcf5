"""What stands on the page of a rented job that cannot start: one sentence that says what to do next.

The service is a fake of Lambda: it answers with the errors that Lambda documents, and its machines really run
the start script.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import sign_in
from tests.live_server import FIRST_EMAIL, FIRST_PASSWORD, LiveServer, server_with_bucket
from tests.providers.services.lambda_service import LambdaService
from tests.providers.services.machine import Machine, plain_machine

SHARED_APP = True
pytestmark = pytest.mark.long

# As a disk of which 300 MB are free says it.
_FULL_DISK = "#!/bin/sh\necho Filesystem blocks Used Available Capacity Mounted\necho disk 9 9 300000 99% /\n"
_ALWAYS = 1000


class TroubledLambda(LambdaService):
    """`full_disk`: of its machines. `spoilt_addresses`: the store refuses them, as expired ones."""

    full_disk = spoilt_addresses = False

    def machine(self, folder: Path, script: str) -> Machine:
        if self.spoilt_addresses:
            start = re.compile(r"(?<=^BLOOM_START=).*", re.MULTILINE)
            script = start.sub(
                lambda found: found[0].replace("X-Amz-Signature=", "X-Amz-Signature=0"), script
            )
        return plain_machine(folder, script, {"df": _FULL_DISK} if self.full_disk else None, clock=self.clock)

    def heal(self) -> None:
        super().heal()
        self.full_disk = self.spoilt_addresses = False


@pytest.fixture(scope="module")
def lambda_service() -> Iterator[TroubledLambda]:
    with TroubledLambda() as service:
        yield service


@pytest.fixture(scope="module")
def shared_app(
    tmp_path_factory: pytest.TempPathFactory, lambda_service: TroubledLambda
) -> Iterator[LiveServer]:
    with server_with_bucket(tmp_path_factory, **lambda_service.environment) as running:
        yield running


@pytest.fixture(scope="module")
def api(shared_app: LiveServer, lambda_service: TroubledLambda) -> Iterator[httpx2.Client]:
    """Ada, who has connected Lambda and stored a secret."""
    with shared_app.first_session() as client:
        _ask(client, "PUT", "/providers/lambda/credentials", {"values": lambda_service.credentials})
        _ask(client, "PUT", "/secrets/WANDB_API_KEY", {"value": "hidden"})
        yield client


def _ask(api: httpx2.Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = api.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def _submit(api: httpx2.Client, *secrets: str) -> str:
    asked = {
        "code": "print('loss 1.0')",
        "name": "A job",
        "packages": [],
        "secrets": list(secrets),
        "offer": {"provider": "lambda", "gpu": "A10"},
    }
    return str(_ask(api, "POST", "/ml-jobs", asked)["job_id"])


def _page_of(page: Page, api: httpx2.Client, job_id: str) -> None:
    project = _ask(api, "GET", f"/jobs/{job_id}")["project_id"]
    page.goto(f"/projects/{project}/jobs/{job_id}")
    sign_in(page, FIRST_EMAIL, FIRST_PASSWORD)
    expect(page.get_by_role("heading", name="A job")).to_be_visible()


@pytest.mark.parametrize(
    ("trouble", "code", "sentence"),
    [
        pytest.param(
            "bad_credentials",
            "bad_credentials",
            "Lambda does not accept the credentials: API key was invalid, expired, or deleted. "
            "Enter valid credentials under Providers. Then resume the job.",
            id="wrong key",
        ),
        pytest.param(
            "inactive_account",
            "inactive_account",
            "Your account at Lambda cannot rent machines now: Your account is inactive. "
            "Complete its payment details or add credit at Lambda, then resume the job.",
            id="inactive account",
        ),
        pytest.param(
            "quota",
            "quota",
            "A limit of your account at Lambda is reached: Quota exceeded. Ask Lambda to raise the limit. "
            "Then resume the job, or move it to another machine.",
            id="no quota",
        ),
        pytest.param(
            "spoilt_addresses",
            "address_expired",
            "The address from which the machine loads the job is no longer valid. "
            "Resume the job: it gets a new one.",
            id="expired address",
        ),
        pytest.param(
            "full_disk",
            "disk_full",
            "The disk of the machine has 0 GB free, and the start needs 1 GB. "
            "Choose an offer with a larger disk",
            id="full disk",
        ),
    ],
)
def test_a_start_that_fails_says_why_and_what_to_do(
    new_page: NewPage,
    live_app: LiveServer,
    api: httpx2.Client,
    lambda_service: TroubledLambda,
    trouble: Any,
    code: str,
    sentence: str,
) -> None:
    if trouble in {"spoilt_addresses", "full_disk"}:
        setattr(lambda_service, trouble, True)
    else:
        calls = None if trouble == "bad_credentials" else lambda_service.launch_call
        lambda_service.fail_next(trouble, times=_ALWAYS, calls=calls)
    try:
        job_id = _submit(api)
        page = new_page()
        _page_of(page, api, job_id)
        _expect_failure(page, code, sentence)
    finally:
        lambda_service.heal()
    assert lambda_service.running == []


def _expect_failure(page: Page, code: str, sentence: str) -> None:
    findings = page.get_by_role("status").filter(has_text="did not start")
    cause, _, advice = sentence.partition(" Then ")
    expect(findings).to_contain_text(cause)
    expect(findings).to_contain_text(advice)
    expect(findings).to_contain_text(code)
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    # Once beside the log of the start, and without advice for other failures.
    told = page.get_by_text(sentence.partition(".")[0]).and_(
        page.locator(":not([aria-label='Log of the start'] *)")
    )
    expect(told).to_have_count(1)
    expect(page.get_by_text("Read the logs")).to_have_count(0)
    assert flaws_on_every_screen(page) == []


def test_no_capacity_is_told_while_the_job_waits(
    new_page: NewPage, live_app: LiveServer, api: httpx2.Client, lambda_service: TroubledLambda
) -> None:
    lambda_service.fail_next("no_capacity", times=_ALWAYS)
    page = new_page()
    try:
        job_id = _submit(api)
        _page_of(page, api, job_id)
        expect(page.get_by_role("status").filter(has_text="Waiting.")).to_contain_text(
            "Lambda has no free machine of this type: Nothing is free. Wait, or choose another offer."
        )
        assert flaws_on_every_screen(page) == []
    finally:
        lambda_service.heal()
    # It starts by itself when there is one.
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=120_000)


def test_a_secret_that_was_deleted_is_named_when_the_job_is_resumed(
    new_page: NewPage, live_app: LiveServer, api: httpx2.Client, lambda_service: TroubledLambda
) -> None:
    lambda_service.fail_next("quota", times=_ALWAYS)
    page = new_page()
    try:
        _page_of(page, api, _submit(api, "WANDB_API_KEY"))
        expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    finally:
        lambda_service.heal()
    _ask(api, "DELETE", "/secrets/WANDB_API_KEY")
    page.get_by_role("button", name="Resume").first.click()
    _expect_failure(
        page,
        "secret_missing",
        "The secret WANDB_API_KEY does not exist (any more). "
        "Store it under Settings, Tokens, or start the job without it.",
    )
