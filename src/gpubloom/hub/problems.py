"""Errors of a hub, each with a code and a sentence that says what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gpubloom.egress import EgressRefused
from gpubloom.errors import InputError


class HubProblem(InputError):
    """An error of a hub, or of files that came from a hub."""


def must_be_installed() -> None:
    """Raises HubProblem when huggingface_hub is not installed."""
    import importlib.util

    if importlib.util.find_spec("huggingface_hub") is None:
        raise HubProblem(
            "not_installed",
            "The package huggingface_hub is not installed. Run: pip install 'gpubloom[hub]'.",
        )


@contextmanager
def hub_sentences(repository: str, endpoint: str) -> Iterator[None]:
    """Turns errors of huggingface_hub into HubProblem."""
    from huggingface_hub import errors

    # Of the HTTP library that the hub's is built on.
    unreachable: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except HubProblem:
        raise
    except EgressRefused as problem:
        raise HubProblem("egress_refused", f"{endpoint} redirects to another server. {problem}") from None
    except errors.GatedRepoError:
        raise HubProblem(
            "no_access",
            f"{repository} is gated: accept its terms at {endpoint}/{repository} with your account, then "
            "set HF_TOKEN to a token of the same account.",
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubProblem(
            "not_found",
            f"{repository} does not exist at {endpoint}, or it is private: check the spelling, or set "
            "HF_TOKEN to a token that may read it.",
        ) from None
    except errors.RevisionNotFoundError:
        raise HubProblem(
            "not_found", f"{repository} does not have this revision: give a branch, tag or commit."
        ) from None
    except errors.EntryNotFoundError as problem:
        raise HubProblem(
            "not_found", f"A file of {repository} is missing at the hub: {_first_line(problem)}"
        ) from None
    except errors.HFValidationError:
        raise HubProblem(
            "not_found", f"{repository!r} is not a hub id. An example of a hub id is Qwen/Qwen3-0.6B."
        ) from None
    except errors.HfHubHTTPError as problem:
        raise _refused(repository, endpoint, problem) from None
    except (unreachable, errors.OfflineModeIsEnabled, ConnectionError) as problem:
        raise HubProblem(
            "no_network",
            f"{endpoint} cannot be reached: {_first_line(problem)} Check the connection, or HF_ENDPOINT.",
        ) from None
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HubProblem(
                "disk_full", f"The disk became full during the download of {repository}: free some space."
            ) from None
        raise


def _refused(repository: str, endpoint: str, problem: Exception) -> HubProblem:
    status = getattr(getattr(problem, "response", None), "status_code", None)
    if status == 401:
        return HubProblem("no_access", f"{endpoint} rejects this token: create a new token and set HF_TOKEN.")
    if status == 403:
        return HubProblem(
            "no_access", f"This token has no permission for {repository}: give the token more permissions."
        )
    if status is not None and status >= 500:
        return HubProblem(
            "no_network", f"{endpoint} has an internal error (status {status}): try again later."
        )
    return HubProblem("refused", f"{endpoint} rejects the request: {_first_line(problem)}")


def _first_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    text = lines[0] if lines else type(problem).__name__
    return text if text.endswith(".") else f"{text}."
