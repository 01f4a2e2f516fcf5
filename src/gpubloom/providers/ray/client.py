"""Ray's job client over our HTTP client: Ray's own follows redirects and connects to any address."""

from typing import Any

from ray.job_submission import JobSubmissionClient

from gpubloom.egress import Policy
from gpubloom.egress.clients import client


class EgressJobClient(JobSubmissionClient):
    """Overrides the one method through which every request goes that `provider` makes."""

    def __init__(self, address: str, token: str | None, policy: Policy) -> None:
        # Each call has a limit of its own, in the provider.
        self._http = client(policy, timeout=None, follow_redirects=False)
        try:
            # Asks the cluster for its version.
            super().__init__(address, headers={"Authorization": f"Bearer {token}"} if token else None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._http.close()

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
        response: Any = self._http.request(
            method,
            f"{self._address}{endpoint}",
            content=data,
            json=json_data,
            headers=self._headers,
            **options,
        )
        if response.status_code in (401, 403):
            self._raise_error(response)
        return response
