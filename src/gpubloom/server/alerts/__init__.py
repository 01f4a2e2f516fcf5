"""Alerts about runs: channels of people and projects, the rules they listen to, and delivery."""
