"""Environments that are stepped outside JAX: copies of a Gymnasium environment, in this process or in workers."""
