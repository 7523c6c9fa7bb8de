"""What a team maximises, and how it becomes a weight for each action."""
