"""What the API reads and answers, by topic."""
