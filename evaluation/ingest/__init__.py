"""What the provider takes in: how fast, how surely, and what agents and runs that vanish do."""
