"""`python -m evaluator` is the `evaluator` command."""

from evaluator.cli import main

main()
