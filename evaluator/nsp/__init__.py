"""Training of next-sentence classifiers out of generative models (Öztürk et al., 2023; method.md §2)."""
