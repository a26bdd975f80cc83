from evaluator.comparison.function import compare as compare
from evaluator.exports.archive import archive as archive
from evaluator.exports.archive import verify as verify
from evaluator.exports.citation import cite as cite
from evaluator.exports.write import export_results as export_results
from evaluator.ranking.write import leaderboard as leaderboard
from evaluator.reports.results import Results as Results
from evaluator.reports.results import open as open
from evaluator.scoring.run import run as run
from evaluator.trackers import log_to as log_to

__version__: str
