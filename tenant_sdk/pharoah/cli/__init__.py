"""The tenant's command line: one module per sub-command, put together in `main`."""
