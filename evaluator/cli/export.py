"""`evaluator export`: a model as ONNX graphs."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, calls, pickle_option


@calls("evaluator.scoring.onnx_export:export_model")
@click.command(name="export")
@click.argument("model")
@click.option("--out", type=LocalPath(path_type=Path, file_okay=False), required=True, metavar="DIR", help="Output folder.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8"]),
    default="float32",
    show_default=True,
    help="Type of the weights; int8: 8-bit matrices with dynamically quantized activations.",
)
@pickle_option
@click.option(
    "--no-verify",
    "verify",
    is_flag=True,
    callback=lambda context, parameter, value: not value,
    help="Skip the comparison with transformers.",
)
def command(**arguments: Any) -> None:
    """Write MODEL, a masked or a generative language model, as ONNX graphs.

    Of a masked model, DIR/scores.onnx takes input_ids, attention_mask, token_type_ids (where the model has several types),
    mask_positions and candidate_ids, and gives the candidates' log-probabilities (natural log) and the log-sum-exp. Of a
    generative one it takes a tree of tokens (input_ids, row_nodes, node_places), reads (nodes), and lookup_reads and
    lookup_tokens: after which of the reads, which token. DIR/hidden.onnx ends at the hidden states that are read,
    DIR/head.onnx goes on from there. What was exported is compared with transformers on the shipped demo sentences; the
    largest difference (for int8: the drift) is printed.

    \b
    Examples:
      evaluator export bert-base-uncased --out exported/bert
      evaluator run gest --model bert-base-uncased --engine onnx --extra folder=exported/bert
    """
    from evaluator.scoring.onnx_export import export_model

    export_model(**arguments, report=click.echo)
