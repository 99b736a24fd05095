"""Metric series: points without ORM objects, axes, and their reduction for charts."""
