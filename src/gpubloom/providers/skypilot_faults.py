"""What SkyPilot raises, in our vocabulary of faults. Its exceptions arrive by name, from another Python."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpubloom.providers.faults import Fault, FaultKind

_LONGEST_SAID = 300

# The first that fits the exception or one that it is derived from.
_KINDS: dict[str, FaultKind] = {
    "NoCloudAccessError": "bad_credentials",
    "ApiServerAuthenticationError": "bad_credentials",
    "PermissionDeniedError": "bad_credentials",
    "InvalidCloudCredentials": "bad_credentials",
    "CloudUserIdentityError": "bad_credentials",
    "ClusterOwnerIdentityMismatchError": "bad_credentials",
    "KubeAPIUnreachableError": "unavailable",
    "ResourcesUnavailableError": "no_capacity",
    "ClusterDoesNotExist": "gone",
    "ClusterNotUpError": "gone",
    "ExecutionPoolFullError": "rate_limited",
    "ConcurrentWorkerExhaustedError": "rate_limited",
    "ApiServerConnectionError": "unavailable",
    "ServerTemporarilyUnavailableError": "unavailable",
    "RequestInterruptedError": "unavailable",
    "NetworkError": "unavailable",
    "FetchClusterInfoError": "unavailable",
    "ClusterStatusFetchingError": "unavailable",
    "ConnectionError": "unavailable",
    "Timeout": "unavailable",
    "HTTPError": "unavailable",
}


def skypilot_fault(problem: Mapping[str, Any], hidden: Iterable[str] = ()) -> Fault:
    """`problem`: as the bridge describes it. `hidden`: what must not be repeated."""
    said = " ".join(str(problem["text"]).split()) or str(problem["types"][0])
    for secret in hidden:
        if secret:
            said = said.replace(secret, "…")
    if len(said) > _LONGEST_SAID:
        said = f"{said[:_LONGEST_SAID]}…"
    known = [_KINDS[name] for name in problem["types"] if name in _KINDS]
    kind: FaultKind = known[0] if known else "refused"
    if kind == "no_capacity" and "quota" in said.lower():
        kind = "quota"
    elif kind == "no_capacity" and not problem.get("tried"):
        # No cloud was asked: none of those that are set up has such a machine, or none that may be used.
        kind = "refused"
    if kind == "bad_credentials":
        return Fault(kind, f"SkyPilot may not do this: {said} `sky check` says which clouds it can use.")
    if kind == "unavailable":
        return Fault(kind, f"SkyPilot cannot be reached at the moment: {said}", uncertain=True)
    return Fault(kind, f"SkyPilot could not do it: {said}")
