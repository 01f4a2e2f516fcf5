"""`python -m gpubloom.cli` is `bloom`."""

from gpubloom.cli import main

main()
