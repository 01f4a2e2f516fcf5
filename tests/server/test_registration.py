"""Sign-up and the emails that confirm an address; strangers learn nothing about who has an account."""

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.message import EmailMessage
from email.utils import getaddresses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gpubloom.server.accounts.schemas import EMAIL_PATTERN, SignUp
from gpubloom.server.accounts.tables import OneTimeLink, User
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, Installation, Server, link_secret

NEW = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD}


def test_sign_up_is_closed_unless_the_operator_opens_it(
    server: Server, installation: Installation, member: User
) -> None:
    for email in ("eve@example.org", member.email):
        answer = server.stranger.post("/api/auth/sign-up", json={**NEW, "email": email})
        assert (answer.status_code, answer.json()["code"]) == (403, "signup_closed")
    assert len(installation.all(User)) == 1
    assert installation.sent_emails() == []


def test_sign_up_leads_through_the_email_to_a_signed_in_member(
    open_server: Server, installation: Installation
) -> None:
    stranger = open_server.stranger
    assert stranger.post("/api/auth/sign-up", json=NEW).status_code == 202
    assert open_server.settings.signup == stranger.get("/api/auth/state").json()["signup"] == "open"
    token = link_secret(installation.sent_emails()[-1])
    signed_in = stranger.post("/api/auth/verify", json={"token": token, "password": PASSWORD})
    assert signed_in.status_code == 200
    assert signed_in.json()["user"]["role"] == "member"
    assert stranger.get("/api/me").json()["email"] == "eve@example.org"
    assert installation.actions() == ["user.signed_up", "user.email_verified", "user.signed_in"]


def test_the_email_lies_in_the_outbox_readable_by_the_owner_only(
    open_server: Server, installation: Installation
) -> None:
    open_server.stranger.post("/api/auth/sign-up", json=NEW)
    [path] = (installation.home / "outbox").glob("*.eml")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    [mail] = installation.sent_emails()
    assert mail["To"] == "eve@example.org"
    assert f"{open_server.settings.address}/auth/verify#token=" in mail.get_content()


@pytest.mark.parametrize("route", ["sign-up", "verify/resend", "password/forgot"])
def test_known_and_unknown_addresses_get_the_same_answer(
    open_server: Server, installation: Installation, member: User, route: str
) -> None:
    installation.add_user("Unverified", verified=False)
    answers = set()
    for email in (member.email, "unverified@example.org", "nobody@example.org"):
        body = {**NEW, "email": email} if route == "sign-up" else {"email": email}
        answer = open_server.browser().post(f"/api/auth/{route}", json=body)
        answers.add((answer.status_code, answer.content, tuple(answer.headers)))
    assert len(answers) == 1


@pytest.mark.usefixtures("one_rate_window")
@pytest.mark.parametrize("route", ["sign-up", "verify/resend", "password/forgot"])
def test_asking_too_often_is_refused_alike_for_known_and_unknown_addresses(
    open_server: Server, installation: Installation, route: str
) -> None:
    """A limit that only real accounts meet would tell a stranger who has one."""
    installation.add_user("Unverified", verified=False)
    codes = {}
    for email in ("unverified@example.org", "nobody@example.org"):
        body = {**NEW, "email": email} if route == "sign-up" else {"email": email}
        codes[email] = [
            open_server.browser().post(f"/api/auth/{route}", json=body).status_code for _ in range(7)
        ]
    assert codes["unverified@example.org"] == codes["nobody@example.org"] == [202] * 5 + [429] * 2
    assert len([mail for mail in installation.sent_emails() if "unverified@" in mail["To"]]) == 5


def test_asking_too_often_leaves_the_last_email_working(
    open_server: Server, installation: Installation, member: User
) -> None:
    for _ in range(7):
        open_server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    body = {"token": link_secret(installation.sent_emails()[-1]), "password": "another quiet garden walk"}
    assert open_server.stranger.post("/api/auth/password/reset", json=body).status_code == 204


def test_an_existing_account_is_told_by_email_that_it_exists(
    open_server: Server, installation: Installation, member: User
) -> None:
    open_server.stranger.post("/api/auth/sign-up", json={**NEW, "email": member.email, "name": "Impostor"})
    [mail] = installation.sent_emails()
    assert mail["Subject"] == "You already have a GPU Bloom account"
    assert installation.get(User, member.id).name == "Ada"
    assert len(installation.all(User)) == 2


def test_a_password_of_a_stranger_opens_no_account_that_its_owner_confirms(
    open_server: Server, installation: Installation
) -> None:
    """Somebody signs up with another's address first, and waits until its owner signs up, too."""
    stranger = {**NEW, "password": "the long password of a stranger"}
    open_server.browser().post("/api/auth/sign-up", json=stranger)
    owner = open_server.browser()
    assert owner.post("/api/auth/sign-up", json=NEW).status_code == 202
    owner.post("/api/auth/verify/resend", json={"email": NEW["email"]})
    mails = installation.sent_emails()
    for password in (stranger["password"], NEW["password"]):
        body = {"token": link_secret(mails[0]), "password": password}
        assert owner.post("/api/auth/verify", json=body).status_code == 422
        body = {"email": NEW["email"], "password": password}
        refused = open_server.browser().post("/api/auth/sign-in", json=body)
        assert (refused.status_code, refused.json()["code"]) == (401, "wrong_credentials")
    assert [mail["Subject"] for mail in mails[1:]] == ["Choose a password for GPU Bloom"] * 2
    body = {"token": link_secret(mails[1]), "password": NEW["password"]}
    assert owner.post("/api/auth/password/reset", json=body).status_code == 204
    signed_in = owner.post("/api/auth/sign-in", json={"email": NEW["email"], "password": NEW["password"]})
    assert signed_in.status_code == 200


def test_the_owner_of_a_mailbox_cannot_confirm_the_password_of_a_stranger(
    open_server: Server, installation: Installation
) -> None:
    """Somebody signs up with another's address, and its owner opens the link in the email."""
    name, password = "Claim your prize at example.net", "the long password of a stranger"
    stranger = {**NEW, "name": name, "password": password}
    open_server.browser().post("/api/auth/sign-up", json=stranger)
    owner = open_server.browser()
    [mail] = installation.sent_emails()
    assert name not in mail.get_content()
    refused = owner.post("/api/auth/verify", json={"token": link_secret(mail), "password": NEW["password"]})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "wrong_password")
    assert "set-cookie" not in refused.headers
    assert owner.post("/api/auth/verify", json={"token": link_secret(mail)}).status_code == 422
    owner.post("/api/auth/password/forgot", json={"email": NEW["email"]})
    body = {"token": link_secret(installation.sent_emails()[-1]), "password": NEW["password"]}
    assert owner.post("/api/auth/password/reset", json=body).status_code == 204
    codes = [
        owner.post("/api/auth/sign-in", json={"email": NEW["email"], "password": each}).status_code
        for each in (password, NEW["password"])
    ]
    assert codes == [401, 200]


def test_a_confirmation_link_works_once(open_server: Server, installation: Installation) -> None:
    open_server.stranger.post("/api/auth/sign-up", json=NEW)
    body = {"token": link_secret(installation.sent_emails()[-1]), "password": PASSWORD}
    assert open_server.stranger.post("/api/auth/verify", json=body).status_code == 200
    again = open_server.browser().post("/api/auth/verify", json=body)
    assert (again.status_code, again.json()["code"]) == (410, "link_used")
    assert "set-cookie" not in again.headers


def test_a_confirmation_link_expires(open_server: Server, installation: Installation) -> None:
    installation.add_user("Eve", verified=False)
    token = installation.add_link("verify", "eve@example.org", expires=now() - timedelta(seconds=1))
    answer = open_server.stranger.post("/api/auth/verify", json={"token": token, "password": PASSWORD})
    assert (answer.status_code, answer.json()["code"]) == (410, "link_expired")


def test_confirmation_links_work_until_one_of_them_is_used(
    open_server: Server, installation: Installation
) -> None:
    open_server.stranger.post("/api/auth/sign-up", json=NEW)
    # Whoever asks for it: a stranger must not end the link that its owner is about to open.
    open_server.browser(address="10.0.0.7").post("/api/auth/verify/resend", json={"email": NEW["email"]})
    older, newer = (link_secret(mail) for mail in installation.sent_emails())
    codes = [
        open_server.browser()
        .post("/api/auth/verify", json={"token": token, "password": PASSWORD})
        .status_code
        for token in (older, newer)
    ]
    assert codes == [200, 410]


def test_a_confirmed_address_gets_no_more_confirmation_emails(
    open_server: Server, installation: Installation, member: User
) -> None:
    open_server.stranger.post("/api/auth/verify/resend", json={"email": member.email})
    assert installation.sent_emails() == []


def test_links_are_stored_as_fingerprints_only(
    open_server: Server, installation: Installation, member: User
) -> None:
    open_server.stranger.post("/api/auth/sign-up", json=NEW)
    open_server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    secrets = [link_secret(mail) for mail in installation.sent_emails()]
    assert len(secrets) == 2
    assert len(installation.all(OneTimeLink)) == 2
    stored = installation.everything_stored()
    assert not any(secret in stored for secret in secrets)
    assert PASSWORD not in stored


def test_one_address_signing_up_many_times_at_once_makes_one_account(
    open_server: Server, installation: Installation
) -> None:
    def sign_up(_: int) -> int:
        return open_server.browser().post("/api/auth/sign-up", json=NEW).status_code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sign_up, range(4))) == [202] * 4
    assert [user.email for user in installation.all(User)].count("eve@example.org") == 1


@pytest.mark.parametrize(
    "email",
    [
        "nobody",
        "@example.org",
        "eve@",
        "eve@@example.org",
        "a@b@example.org",
        "group:eve@example.org",
        "eve@example.org\r\nBcc: all@example.org",
        "Eve <eve@example.org>",
        "eve@exämple.org",
        "eve@example.org,mallory@example.org",
        "eve\x00@example.org",
        "e" * 250 + "@example.org",
        "eve@-example.org",
        "eve@example..org",
        17,
        None,
        ["eve@example.org"],
    ],
)
def test_what_is_no_email_address_is_refused(email: object) -> None:
    with pytest.raises(ValidationError) as refused:
        SignUp.model_validate({**NEW, "email": email})
    assert [error["loc"] for error in refused.value.errors()] == [("email",)]


@settings(max_examples=40, deadline=None)
@given(st.from_regex(EMAIL_PATTERN, fullmatch=True).filter(lambda text: len(text) <= 254))
def test_the_email_goes_to_exactly_the_address_that_was_given(email: str) -> None:
    accepted = SignUp.model_validate({**NEW, "email": email}).email
    assert accepted == email.lower()
    message = EmailMessage()
    message["To"] = accepted
    assert getaddresses([message["To"]]) == [("", accepted)]


def test_addresses_are_stored_in_lower_case(open_server: Server, installation: Installation) -> None:
    body = {**NEW, "email": "Eve.O'Hara+bloom@Example.CO.uk"}
    assert open_server.stranger.post("/api/auth/sign-up", json=body).status_code == 202
    assert "eve.o'hara+bloom@example.co.uk" in [user.email for user in installation.all(User)]


@pytest.mark.parametrize(
    "name", ["", "   ", "two\nlines", "two\u2028lines", "bell\x07", "next\x85line", "x" * 121, None, 5]
)
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(ValidationError) as refused:
        SignUp.model_validate({**NEW, "name": name})
    assert [error["loc"] for error in refused.value.errors()] == [("name",)]
