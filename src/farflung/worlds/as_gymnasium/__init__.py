"""farflung's worlds as Gymnasium environments, for your own agents."""
