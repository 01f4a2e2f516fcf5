"""The web service: accounts, projects, datasets, models, jobs and rentals, behind one HTTP API that also
serves the web app.

One folder per subject, each with its tables, service, routes and schemas; `app.py` assembles them. Nothing
here imports torch: heavy work happens in other processes.
"""
