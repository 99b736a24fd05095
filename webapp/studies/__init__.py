"""Studies: one claim, arms × seeds as ordinary runs, one page with the verdict."""
