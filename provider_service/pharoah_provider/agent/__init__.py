"""The agent: stands on one node, measures it, hands out tickets, runs what the provider orders. Never imports torch."""
