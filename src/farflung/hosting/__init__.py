"""Simulators that run outside JAX, step by step: Gymnasium's, with any number of copies, here or in worker processes."""
