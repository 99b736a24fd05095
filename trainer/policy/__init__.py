"""Policies: loading and saving, scoring token sequences, identity of weights."""
