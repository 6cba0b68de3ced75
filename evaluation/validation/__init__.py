"""Whether nodes are rightly called slower, and classed, where the truth is known."""
