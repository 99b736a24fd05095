"""The characters that the built-in tasks write and read; the character tokenizer takes its vocabulary from
here."""

DIGITS = "0123456789"
OPERATORS = "+-*/%="
PUNCTUATION = "().,:#?"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BLANKS = " \n"

ALPHABET = BLANKS + DIGITS + OPERATORS + PUNCTUATION + LETTERS
"""All of them in a fixed order (a tokenizer's ids depend on it), each once."""
