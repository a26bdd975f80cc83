"""What engines and baselines reach on this machine's hardware: sentences and tokens a second, measured side by side.

Each backend runs in its own process (`backends`), which the command's process asks slice by slice (`measure`). Records are
kept by hardware (`evaluator.sweep.benches`), where plans find them.
"""
