"""Which prompts are drawn."""
