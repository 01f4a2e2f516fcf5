"""Which passwords are refused, wherever one is chosen, and the advice for choosing a better one."""

import pytest

from gpubloom.server.accounts.tables import User
from tests.server.installation import PASSWORD, Installation, Server

# Long enough, and in no short list of common passwords.
WEAK = [
    "password1234",
    "iloveyou2024!",
    "Tr0ub4dour&3",
    "qwertyuiop12",
    "aaaaaaaaaaaaaaaa",
    "abcdefghijklmn",
    "123450987654321",
    "Xk9" * 42,
    "grace@example.org1",
    "GraceHopper1906",
    "gpubloom2024",
]


@pytest.mark.parametrize("password", WEAK)
def test_a_password_that_is_easy_to_guess_is_refused_with_advice(server: Server, password: str) -> None:
    body = {"token": "x", "name": "Grace Hopper", "email": "grace@example.org", "password": password}
    answer = server.stranger.post("/api/auth/setup", json=body)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["field"], error["code"]) == ("password", "weak_password")
    assert len(error["message"].split()) > 8, "it says why, and what helps"
    assert password not in answer.text


@pytest.mark.parametrize(("password", "sentence"), [("short", "at least 10"), ("x y" * 43, "at most 128")])
def test_a_password_has_a_length(server: Server, password: str, sentence: str) -> None:
    body = {"token": "x", "name": "Grace", "email": "grace@example.org", "password": password}
    assert sentence in server.stranger.post("/api/auth/setup", json=body).json()["detail"]


def test_a_weak_password_is_refused_at_sign_up_reset_and_change(
    open_server: Server, installation: Installation, member: User
) -> None:
    token = installation.add_link("reset", member.email)
    # Ada's own address is known although these requests do not name it.
    weak = "ada@example.org1"
    answers = [
        open_server.stranger.post(
            "/api/auth/sign-up", json={"name": "Ada", "email": member.email, "password": weak}
        ),
        open_server.stranger.post("/api/auth/password/reset", json={"token": token, "password": weak}),
        open_server.signed_in(member).post(
            "/api/me/password", json={"current_password": PASSWORD, "new_password": weak}
        ),
    ]
    assert {answer.status_code for answer in answers} == {422}
    assert {answer.json()["errors"][0]["code"] for answer in answers} == {"weak_password"}


def test_a_password_is_rated_before_it_is_chosen(server: Server) -> None:
    rate = "/api/auth/password/strength"
    good = server.stranger.post(rate, json={"password": PASSWORD}).json()
    assert good == {"score": 4, "advice": None}
    personal = {"password": "ada.lovelace1815", "name": "Ada Lovelace", "email": "ada@example.org"}
    bad = server.stranger.post(rate, json=personal).json()
    assert bad["score"] < 3
    assert "your name" in bad["advice"]


@pytest.mark.usefixtures("one_rate_window")
def test_rating_is_limited_per_client(server: Server, installation: Installation) -> None:
    body = {"password": "short"}
    codes = {server.stranger.post("/api/auth/password/strength", json=body).status_code for _ in range(300)}
    assert codes == {200}
    assert server.stranger.post("/api/auth/password/strength", json=body).status_code == 429
