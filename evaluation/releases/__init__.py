"""`python -m evaluation releases`: every release of torch and Python that is promised, really installed."""
