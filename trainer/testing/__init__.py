"""Tiny real models and tokenizers for tests."""
