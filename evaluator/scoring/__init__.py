"""From a run's specification to stored answers: prepare (validate everything), load, score chunk by chunk, store."""
