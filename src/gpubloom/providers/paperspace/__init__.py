"""Paperspace: virtual machines by the hour."""
