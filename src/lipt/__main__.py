"""`python -m lipt`."""

from lipt.cli import main

main()
