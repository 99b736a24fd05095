"""Projects, the frame of their pages, and the home page."""
