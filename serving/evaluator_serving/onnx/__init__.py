"""Masked language models in ONNX Runtime: graphs built from a checkpoint's tensors, and the engine that runs them."""
