"""Data sets translated with any translator: the functions of `evaluator translate` and `evaluator translate-dataset`."""
