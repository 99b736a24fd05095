"""Checkpoints: which weights there are, where they came from, and which runs started from them."""
