"""The run list: every run of a person in one table, with filters, groups, tags, notes and saved views."""
