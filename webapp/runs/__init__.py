"""Runs, their attempts, the written state machine, and the rows of events that have no table of their own."""
