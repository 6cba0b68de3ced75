"""What reading a node's signals costs, and what reaches the provider."""
