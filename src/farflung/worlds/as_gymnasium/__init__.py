"""farflung's worlds as Gymnasium environments, for other agents."""
