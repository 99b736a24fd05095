"""Nouns, errors, randomness, slots: what every other part of the trainer builds on."""
