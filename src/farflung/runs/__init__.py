"""A training run on disk: its files, checkpoints, locks and safe reading."""
