"""Advantage estimators: pure functions."""
