"""The web app over a folder of runs (`bloom ui`): the same pages and API routes, no account and no database.

`runs` finds the runs and gives them ids, `run_page` makes the page of a run from its directory, `views` keeps
saved views in a file of the folder, `app` has the routes. It reads run directories like every other viewer
and writes tags, notes and views only.
"""
