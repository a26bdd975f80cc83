"""The openai engine: a model on an OpenAI-compatible server."""
