"""The entropy that a team maximises, and the credit that turns it into a weight for each action."""
