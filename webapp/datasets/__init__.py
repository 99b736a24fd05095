"""Datasets: uploads, their mapping and import, versions with their report, and which runs used them."""
