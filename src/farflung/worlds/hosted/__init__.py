"""Worlds stepped on the host: copies of a Gymnasium environment, in this process or in workers."""
