"""Every experiment and figure of the paper, on one page."""
