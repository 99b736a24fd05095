"""The REST API below /api/v1, and the page where people make tokens for it."""
