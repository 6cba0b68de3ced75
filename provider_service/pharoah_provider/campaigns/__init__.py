"""Campaigns that last: a stored plan, whose works are done block by block, whatever is killed meanwhile."""
