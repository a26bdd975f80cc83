"""Throughput of engines and baselines on this machine, in sentences and tokens per second, measured side by side.

Each backend runs in its own process (`backends`) and scores one slice at a time when the parent process requests it
(`measure`). Records are stored by hardware (`evaluator.sweep.benches`), where plans look them up.
"""
