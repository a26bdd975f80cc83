"""What engines and other ways reach on this machine's hardware: sentences and tokens a second, measured side by side.

Each way lives in a process of its own (`ways`), which the command's process asks slice by slice (`measure`). Records are kept
by hardware (`evaluator.sweep.benches`), where plans find them.
"""
