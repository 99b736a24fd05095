"""Problems to train and evaluate on. Import-light: no torch, numpy or transformers."""
