"""Letters through a real mail server on the loopback address, and what happens when it is away."""

from collections.abc import Iterator

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from gpubloom.server.accounts.tables import User
from tests.ports import free_port
from tests.server.installation import Installation


class Mailbox(Message):
    """Keeps what arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_emails: list[tuple[str, str]] = []

    def handle_message(self, message: object) -> None:
        self.sent_emails.append((message["X-RcptTo"], message.get_payload()))


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield box, controller.port
    controller.stop()


def test_emails_go_through_the_mail_server(
    installation: Installation, member: User, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    with installation.serve(smtp_url=f"smtp://127.0.0.1:{port}") as server:
        assert server.stranger.get("/api/auth/state").json()["mail"] == "smtp"
        server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    [(recipient, text)] = box.sent_emails
    assert recipient == member.email
    assert "/auth/reset#token=" in text
    assert installation.sent_emails() == []


def test_a_password_is_not_sent_to_a_mail_server_without_tls(
    installation: Installation, member: User, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    with installation.serve(smtp_url=f"smtp://user:secret@127.0.0.1:{port}") as server:
        answer = server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    assert answer.status_code == 202
    assert box.sent_emails == []
    assert len(installation.sent_emails()) == 1


def test_an_email_is_kept_when_the_mail_server_is_down(installation: Installation, member: User) -> None:
    with installation.serve(smtp_url=f"smtp://127.0.0.1:{free_port()}") as server:
        answer = server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    assert answer.status_code == 202
    [mail] = installation.sent_emails()
    assert mail["To"] == member.email
