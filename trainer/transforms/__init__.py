"""Transforms on rewarded groups: filter, replace, inject, deduplicate."""
