"""The worker: claims jobs, starts them through a provider, follows their runs, tells the database.

docs/jobs.md has the rules. A worker can be killed at any moment: another one goes on from the run directory
and the file cursor in the job's row. It never trains, and it imports no torch.
"""
