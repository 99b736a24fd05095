"""Sampling: the sampler protocol and its engines."""
