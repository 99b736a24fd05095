"""The web application: launches, follows and compares runs. Never imports torch."""
