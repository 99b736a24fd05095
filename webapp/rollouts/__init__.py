"""Rollouts: an index in the database, the rows themselves in append-only Parquet parts."""
