"""The worlds that a team can explore."""
