"""The RL core of Unsqueeze: no web application is needed to run it (``python -m trainer --help``)."""

__version__ = "0.1.0"
