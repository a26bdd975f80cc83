"""Fused masked softmax: candidates' log-probabilities without the vocabulary-sized logits in memory."""
