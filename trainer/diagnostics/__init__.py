"""Measurements on rollouts and evaluations."""
