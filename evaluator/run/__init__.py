"""The driver of a run: prepare (validate everything), load, score chunk by chunk, store."""
