"""Sample makers: what of a trajectory the optimiser sees, and in how many pieces."""
