"""Serves the built web app: its files, and its first page for every address that the app routes itself."""
