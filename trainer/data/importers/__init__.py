"""Reading users' files as problems: `sources` opens, `records` parses, `formats` recognises, `rows` maps, `imports` stores.

Everything streams; a file is never held in memory. This runs in a process of its own (``python -m trainer dataset``):
see `trainer.contract.dataset`.
"""
