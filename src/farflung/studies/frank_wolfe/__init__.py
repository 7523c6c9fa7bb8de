"""Parallel Frank-Wolfe against the theorem on its convergence rate."""
