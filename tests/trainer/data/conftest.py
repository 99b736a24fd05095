"""No time limit per hypothesis example: the machine may be busy, and the first example fills caches."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
