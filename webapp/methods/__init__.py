"""The library of methods, as the web sees it: what a method is called, which charts it brings, what a metric means."""
