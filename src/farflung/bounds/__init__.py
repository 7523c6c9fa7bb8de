"""Certified upper bounds on the entropy of any team, and the paper's theorems."""
