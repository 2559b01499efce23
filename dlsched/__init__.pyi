from simulate.results.columns import Columns as Columns
from simulate.study import StudyResults as StudyResults
from simulate.study import study as study

__version__: str
