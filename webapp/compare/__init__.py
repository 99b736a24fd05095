"""Runs side by side: pass@k curves, paired differences, crossings, metrics, configurations."""
