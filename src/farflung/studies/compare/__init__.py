"""Comparing runs over worlds and seeds."""
