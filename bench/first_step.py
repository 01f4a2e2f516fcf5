"""From the click to the first step: how long a person waits.

    python bench/first_step.py

The clock runs from the request that creates a job until the API shows its first step. *Cold*: the first job
right after the app was started, whose worker is still loading torch. *Warm*: jobs after that. A second app
without the sandbox runs beside it and shows what the sandbox costs.
"""

import statistics
import time

from live_app import LiveApp, start_app


def seconds_to_first_step(app: LiveApp) -> float:
    """Start a job and wait for its first step; the job is then cancelled."""
    started = time.perf_counter()
    job_id = app.start_job(batch_size=4, max_steps=100_000, epochs=1000)
    while not (app.job(job_id)["summary"].get("step") or 0):
        time.sleep(0.02)
    waited = time.perf_counter() - started
    app.client.post(f"/api/jobs/{job_id}/cancel")
    app.wait(job_id, "cancelled", "completed")
    return waited


def main() -> None:
    with start_app() as app:
        cold = seconds_to_first_step(app)
        with start_app(BLOOM_SANDBOX="off") as open_app:
            seconds_to_first_step(open_app)
            # In turn, so that both see the same machine.
            pairs = [(seconds_to_first_step(app), seconds_to_first_step(open_app)) for _ in range(7)]
    warm = [inside for inside, _ in pairs]
    added = statistics.median(inside - outside for inside, outside in pairs)
    print(f"cold: {cold:.1f} s (goal: at most 10)")
    print(f"warm: {statistics.median(warm):.1f} s median, {max(warm):.1f} s slowest of 7 (goal: at most 3)")
    print(f"the sandbox adds {added:+.2f} s to a warm start, median of 7 pairs (goal: at most 0.3)")


if __name__ == "__main__":
    main()
