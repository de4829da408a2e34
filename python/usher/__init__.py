"""Network access protocols, studied in simulation: the code that is simulated is the code that is deployed.

    import usher
    results = usher.study("aaa-hol").run(quick=True)
    results.figure("delay-md5")

`studies` lists the studies of the package. `study` opens one of them, or a file of your own. See docs/howto/python.md.
"""

from usher._errors import (
    BackendError,
    Fault,
    FolderError,
    PartialResults,
    StudyError,
    UsherError,
    VersionError,
)
from usher._known import Check, claims, verify
from usher._native import __version__
from usher._results import Claim, Claims, Failure, Figure, Ran, Results, Table
from usher._sizing import Sizing, plan
from usher._study import Plan, Point, Study, read, run_point, studies, study
from usher._sweep import sweep

__all__ = [
    "BackendError",
    "Check",
    "Claim",
    "Claims",
    "Failure",
    "Fault",
    "Figure",
    "FolderError",
    "PartialResults",
    "Plan",
    "Point",
    "Ran",
    "Results",
    "Sizing",
    "Study",
    "StudyError",
    "Table",
    "UsherError",
    "VersionError",
    "__version__",
    "claims",
    "plan",
    "read",
    "run_point",
    "studies",
    "study",
    "sweep",
    "verify",
]
