"""Reproducible numerics: lookups and sums whose bits do not depend on the order, noise in bulk, compiler options."""
