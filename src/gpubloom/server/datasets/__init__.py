"""Datasets of users: upload, statistics, preview."""
