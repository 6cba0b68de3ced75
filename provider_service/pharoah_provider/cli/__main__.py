"""`python -m pharoah_provider.cli`."""

from pharoah_provider.cli import entry

entry()
