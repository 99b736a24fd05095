"""The list of a project's runs, and the home page's bands that are made of runs."""
