"""Every credit with every optimiser, on one page."""
