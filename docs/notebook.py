# %% [markdown]
# # Stereotype measures in a notebook
#
# The program's Python interface, step by step. Open this file as a notebook (Jupytext, VS Code, PyCharm and marimo read the
# `# %%` cells) or run it as it is. It scores two models on the 160 demonstration sentences that the package ships, which takes
# seconds on a CPU after the models are downloaded. Replace them with your models and tasks.

# %%
import os
import tempfile
from pathlib import Path

import polars as pl

import evaluator

MODELS = dict(
    pair.split("=", 1)
    for pair in os.environ.get(
        "NOTEBOOK_MODELS", "base=HuggingFaceTB/SmolLM2-135M,chat=HuggingFaceTB/SmolLM2-135M-Instruct"
    ).split(",")
)
FOLDER = Path(tempfile.mkdtemp()) / "demo"

# %% [markdown]
# ## Score
#
# Calling this again resumes an interrupted run and scores only what is missing. `evaluator.open(FOLDER)` opens a run made on
# the command line.

# %%
run = evaluator.run("gest-demo", MODELS, FOLDER)
print(run.models, run.tasks)
for note in run.notes:
    print(note)

# %% [markdown]
# ## Rates
#
# One row per model, template, measure and group: the same numbers as `evaluator report --format csv`. The main measure is
# `g_s`: 1 is unbiased; above 1, the model prefers masculine forms more in sentences of male stereotypes than in those of female
# ones. A single q has no meaning: compare the q of one model and template.

# %%
rates = run.rates()
print(rates.filter(pl.col("measure") == "g_s").select("model", "template", "value", "low", "high"))

# %%
q = rates.filter((pl.col("measure") == "q") & (pl.col("template") == "3"))
print(q.pivot(on="model", index="group", values="value"))

# %% [markdown]
# The released GEST code prints other units; `scale="published"` reproduces them exactly, without scoring again.

# %%
published = run.rates(scale="published", interval="published")

# %% [markdown]
# ## Per-sample scores and answers
#
# Natural logarithms. `answers` are the engine's log-probabilities by token.

# %%
scores = run.scores()
print(scores.group_by("model", "group").agg(pl.col("score").mean()).sort("model", "group").head())
first = run.models[0]
print(run.answers(first).head())

# %% [markdown]
# ## Compare
#
# Paired differences on the same sentences: a 95% interval, a permutation test with Holm's correction, and the minimum
# detectable effects.

# %%
differences = evaluator.compare(run, baseline=first)
print(
    differences.filter(pl.col("measure") == "g_s").select(
        "model", "template", "difference", "low", "high", "p_holm", "detectable_low", "detectable_high"
    )
)
