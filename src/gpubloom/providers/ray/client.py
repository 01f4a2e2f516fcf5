"""Ray's job client over our HTTP client: Ray's own follows redirects and connects to any address."""

from typing import Any

import httpx2
from ray.job_submission import JobSubmissionClient

from gpubloom.egress.clients import UNPACKED, read_bounded_in_thread

# Thousands of jobs of a busy cluster.
_MOST_BYTES = 16 << 20


class EgressJobClient(JobSubmissionClient):
    """Overrides the one method through which every request goes that `provider` makes. `http` obeys the
    egress policy, and is closed by whoever made it."""

    def __init__(self, address: str, token: str | None, http: httpx2.Client) -> None:
        self._http = http
        # Asks the cluster for its version.
        super().__init__(address, headers={"Authorization": f"Bearer {token}"} if token else None)

    def _do_request(
        self,
        method: str,
        endpoint: str,
        *,
        data: bytes | None = None,
        json_data: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """A response with what Ray reads of it: status_code, text, json() and raise_for_status()."""
        with self._http.stream(
            method,
            f"{self._address}{endpoint}",
            content=data,
            json=json_data,
            headers={**(self._headers or {}), **UNPACKED},
            **options,
        ) as answer:
            content = read_bounded_in_thread(answer, _MOST_BYTES)
        response: Any = httpx2.Response(answer.status_code, content=content, request=answer.request)
        if response.status_code in (401, 403):
            self._raise_error(response)
        return response
