"""The words of every letter. Links carry their secret in the fragment, which browsers never send."""

from gpubloom.server.accounts.mail import Letter


def page_link(address: str, page: str, parameter: str, secret: str) -> str:
    """A link to a page of the web app with a secret for it."""
    return f"{address}{page}#{parameter}={secret}"


def verification(address: str, to: str, name: str, secret: str) -> Letter:
    link = page_link(address, "/auth/verify", "token", secret)
    return Letter(
        to=to,
        subject="Confirm your email address for GPU Bloom",
        text=f"Hello {name},\n\n"
        f"open this link within 24 hours to confirm your address and sign in:\n\n{link}\n\n"
        "If you did not sign up, ignore this letter: no account will be usable.\n",
        link=link,
    )


def already_registered(address: str, to: str) -> Letter:
    return Letter(
        to=to,
        subject="You already have a GPU Bloom account",
        text="Hello,\n\nsomebody, perhaps you, tried to sign up with this address. "
        f"You already have an account: sign in at {address}/auth, or choose a new password at "
        f"{address}/auth/forgot if you forgot yours.\n",
    )


def password_reset(address: str, to: str, name: str, secret: str) -> Letter:
    link = page_link(address, "/auth/reset", "token", secret)
    return Letter(
        to=to,
        subject="Choose a new GPU Bloom password",
        text=f"Hello {name},\n\nopen this link within an hour to choose a new password:\n\n{link}\n\n"
        "If you did not ask for it, ignore this letter: your password stays as it is.\n",
        link=link,
    )


def password_changed(address: str, to: str, name: str) -> Letter:
    return Letter(
        to=to,
        subject="Your GPU Bloom password was changed",
        text=f"Hello {name},\n\nyour password was just changed, and other browsers were signed out. "
        f"If that was not you, choose a new one now: {address}/auth/forgot\n",
    )


def invitation(address: str, to: str, inviter: str, secret: str) -> Letter:
    link = page_link(address, "/auth", "invite", secret)
    return Letter(
        to=to,
        subject=f"{inviter} invites you to GPU Bloom",
        text=f"Hello,\n\n{inviter} invites you to train models with GPU Bloom. "
        f"Open this link within 7 days to create your account:\n\n{link}\n",
        link=link,
    )
