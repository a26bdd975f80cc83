"""The words that the packages share: values and frames that travel from data sets over tasks and measures to reports.

Nothing here imports anything of this project but the requests of `evaluator_serving`.
"""

from evaluator.vocabulary.layout import GENDERS, Layout, Overview, Side, plain_layout
from evaluator.vocabulary.options import Interval, MeasureOptions, Protocol_, Scale
from evaluator.vocabulary.rows import SCORES, TIDY, tidy
from evaluator.vocabulary.samples import ORDER, DataSource, Rendered, Samples

__all__ = [
    "GENDERS",
    "ORDER",
    "SCORES",
    "TIDY",
    "DataSource",
    "Interval",
    "Layout",
    "MeasureOptions",
    "Overview",
    "Protocol_",
    "Rendered",
    "Samples",
    "Scale",
    "Side",
    "plain_layout",
    "tidy",
]
