"""The operations, by topic."""
