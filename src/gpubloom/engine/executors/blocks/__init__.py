"""Runs a model block by block on one device. First placement: every block resident."""

from gpubloom.engine.executors.blocks.resident import ResidentExecutor

__all__ = ["ResidentExecutor"]
