"""Teams, who is in them, and what each role may do."""
