"""Values and frames exchanged between data sets, tasks, measures and reports.

Imports nothing of this project except the requests of `evaluator_serving`.
"""

from evaluator.vocabulary.layout import Contour, Layout, Overview, Scatter, Side, plain_layout
from evaluator.vocabulary.options import SCALES, Interval, MeasureOptions, Protocol_, RateChoices, Scale
from evaluator.vocabulary.rows import SCORES, TIDY, tidy
from evaluator.vocabulary.samples import ORDER, DataSource, ExistingAnswers, Rendered, Samples

__all__ = [
    "ORDER",
    "SCALES",
    "SCORES",
    "TIDY",
    "Contour",
    "DataSource",
    "ExistingAnswers",
    "Interval",
    "Layout",
    "MeasureOptions",
    "Overview",
    "Protocol_",
    "RateChoices",
    "Rendered",
    "Samples",
    "Scale",
    "Scatter",
    "Side",
    "plain_layout",
    "tidy",
]
