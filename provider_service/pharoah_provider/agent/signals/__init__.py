"""The signals of a node, one per module (`pharoah_provider.agent.signal`)."""
