"""What can go wrong with a hub, each with a code and a sentence that says what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gpubloom.errors import InputError


class HubProblem(InputError):
    """Something that cannot be done with a hub, or with what came from one."""


def must_be_installed() -> None:
    """Says what to install before anything is asked of a hub."""
    import importlib.util

    if importlib.util.find_spec("huggingface_hub") is None:
        raise HubProblem(
            "not_installed",
            "Hubs need huggingface_hub, which is not installed. Run: pip install 'gpubloom[hub]'.",
        )


@contextmanager
def hub_sentences(repository: str, endpoint: str) -> Iterator[None]:
    """Within it, what the hub's library raises becomes a HubProblem."""
    from huggingface_hub import errors

    # Of the HTTP library that the hub's is built on.
    unreachable: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except HubProblem:
        raise
    except errors.GatedRepoError:
        raise HubProblem(
            "no_access",
            f"{repository} asks for its terms to be accepted first: accept them at {endpoint}/{repository}, "
            "then give a token of that account (HF_TOKEN).",
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubProblem(
            "not_found",
            f"There is no {repository} at {endpoint}, or it is private: check its spelling, or give a "
            "token that may read it (HF_TOKEN).",
        ) from None
    except errors.RevisionNotFoundError:
        raise HubProblem(
            "not_found", f"{repository} has no such revision: name a branch, tag or commit."
        ) from None
    except errors.EntryNotFoundError as problem:
        raise HubProblem("not_found", f"{repository} lacks a file it names: {_first_line(problem)}") from None
    except errors.HFValidationError:
        raise HubProblem(
            "not_found", f"{repository!r} is not an id of a hub, such as Qwen/Qwen3-0.6B."
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
                "disk_full", f"The disk is full while {repository} is fetched: make room."
            ) from None
        raise


def _refused(repository: str, endpoint: str, problem: Exception) -> HubProblem:
    status = getattr(getattr(problem, "response", None), "status_code", None)
    if status == 401:
        return HubProblem(
            "no_access", f"{endpoint} does not know this token: make a new one and set HF_TOKEN."
        )
    if status == 403:
        return HubProblem("no_access", f"This token may not do that with {repository}: it needs more rights.")
    if status is not None and status >= 500:
        return HubProblem(
            "no_network", f"{endpoint} has trouble of its own (status {status}): try again later."
        )
    return HubProblem("refused", f"{endpoint} refuses: {_first_line(problem)}")


def _first_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    text = lines[0] if lines else type(problem).__name__
    return text if text.endswith(".") else f"{text}."
