"""Which jobs get an answer: scripts and models of public libraries, as people run them."""
