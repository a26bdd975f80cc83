"""What of an installation works on this machine, and what to do about what doesn't. See `examine`.

Nothing here imports torch, transformers, vllm or ray: what may be broken is tried in a process of its own.
"""
