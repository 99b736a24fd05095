"""The page of one run: overview, squeezing, rollouts, evaluations, configuration, and the data of its charts."""
