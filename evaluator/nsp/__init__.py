"""Fine-tune generative models as next-sentence classifiers (Öztürk et al., 2023; method.md §2)."""
