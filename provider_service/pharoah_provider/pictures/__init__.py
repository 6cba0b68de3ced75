"""Pictures of what learning has found, for people. They need the extra `draw`."""
