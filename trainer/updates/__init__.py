"""Parts around the optimiser step."""
