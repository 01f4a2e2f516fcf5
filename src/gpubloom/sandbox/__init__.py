"""Confinement of code and files that come from people: namespaces, mounts, limits, system call filters.

The standard library is all that this package uses: parts of it run before any other package can be imported.
"""
