"""Replicate: trainings of a Cog model that a person has pushed."""
