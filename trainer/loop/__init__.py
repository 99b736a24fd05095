"""The training loop; it knows nothing of any method."""
