"""Files of weights: what they hold, and how they come from the hub into this machine's cache."""
