"""`evaluator export`: a model as ONNX graphs."""

from pathlib import Path

import click

from evaluator.cli.options import LocalPath, pickle_option


@click.command(name="export")
@click.argument("model")
@click.argument("folder", metavar="DIR", type=LocalPath(path_type=Path, file_okay=False))
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8"]),
    default="float32",
    show_default=True,
    help="Of the weights; int8: the layers' matrices in 8 bits, what they multiply quantized on the fly.",
)
@pickle_option
@click.option("--no-verify", is_flag=True, help="Skip the comparison with transformers.")
def command(model: str, folder: Path, dtype: str, allow_pickle: bool, no_verify: bool) -> None:
    """Write MODEL, a masked or a generative language model, into the new folder DIR as ONNX graphs.

    Of a masked model, DIR/scores.onnx takes input_ids, attention_mask, token_type_ids (where the model has several types),
    mask_positions and candidate_ids, and gives the candidates' log-probabilities (natural log) and the log-sum-exp. Of a
    generative one it takes a tree of tokens (input_ids, row_nodes, node_places), reads (nodes), and lookup_reads and
    lookup_tokens: after which of the reads, which token. DIR/hidden.onnx ends at the hidden states that are read,
    DIR/head.onnx goes on from there. What was exported is compared with transformers on the shipped demo sentences; the
    largest difference (for int8: the drift) is printed.

    \b
    Examples:
      evaluator export bert-base-uncased exported/bert
      evaluator run gest --model bert-base-uncased --engine onnx --extra folder=exported/bert
    """
    from evaluator_serving.models.resolving import resolve_here
    from evaluator_serving.onnx.export import export

    source = resolve_here(model, allow_pickle=allow_pickle)
    manifest = export(source, folder, dtype)
    size = sum(file.stat().st_size for file in folder.iterdir())
    click.echo(f"{folder}: {manifest.family}, {dtype}, opset {manifest.versions['opset']}, {size / 1e6:.0f} MB")
    if no_verify:
        return
    if dtype == "float16":
        click.echo("not verified: float16 runs on CUDA only; a run on CUDA verifies it")
        return

    from evaluator.tasks.gest import gest_demo
    from evaluator.vocabulary import DataSource
    from evaluator_serving.checks.verify import verify_engine
    from evaluator_serving.chunks import merge
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.opening import open_engine

    task = gest_demo()
    requests = task.render(task.load(DataSource()), frozenset({manifest.head}), "default").requests
    encoder = encoder_for(source)
    rows = merge([encoder.encode(request) for request in requests.values()]).rows
    options = EngineOptions(dtype=dtype, device="cpu", extra={"folder": str(folder)})
    engine = open_engine("onnx", source, options, rows)
    try:
        click.echo(verify_engine(engine, source, options, rows))
    finally:
        engine.close()
