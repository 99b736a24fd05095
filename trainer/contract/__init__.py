"""The narrow seam: configuration, events, names and formulas. Imports neither torch nor numpy."""
