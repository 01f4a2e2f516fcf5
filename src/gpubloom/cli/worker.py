"""`bloom worker`: claims jobs and follows their runs on this machine."""


def worker() -> None:
    """Run a worker: it claims queued jobs, starts them on this machine and follows them."""
    from gpubloom.cli.worker_process import run_worker

    run_worker()
