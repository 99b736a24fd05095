"""`manage.py demo`: a whole installation on one machine, with a live demonstration in it."""
