"""Loss terms; aggregate.py is the only file that divides a loss."""
