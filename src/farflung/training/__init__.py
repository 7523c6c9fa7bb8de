"""The training loop, what it records, and how it notices divergence."""
