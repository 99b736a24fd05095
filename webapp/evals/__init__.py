"""Evaluations: per problem (n, c), from which every pass@k, interval and verdict is computed when it is read."""
