"""`python -m pharoah`: the tenant's command line."""

from pharoah.cli.main import entry

entry()
