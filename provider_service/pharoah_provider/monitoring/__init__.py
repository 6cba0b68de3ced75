"""Monitoring: reports become risk, risk becomes suspicion, suspicion is validated before anybody is alarmed."""
