"""What differs between two runs: records of jobs, sealed where they leave the house, and their comparison."""
