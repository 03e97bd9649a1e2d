"""What a Python program asks of sentdist: a function for each command that answers in this process, with the same names and defaults.

`import sentdist` offers what `sentdist.__all__` names of it; nothing heavy is loaded before one of them is called. Wherever an encoder is
asked for, an `Encoder`, a folder, a packaged name (`minilm-l6`), a hub id or the key of a train artifact will do. `store=None` takes the
environment variable SENTDIST_STORE, else `.sentdist/store`; `data=None` takes SENTDIST_DATA, else only data that the package makes itself.
Mistakes are a `SentdistError`: where, what was found, what was expected, what to do.
"""

from __future__ import annotations

from sentdist.api.encoders import Encoder as Encoder
from sentdist.api.encoders import Hit as Hit
from sentdist.api.encoders import objective as objective
from sentdist.api.encoders import search as search
from sentdist.api.encoders import similarity as similarity
from sentdist.api.recipes import plan as plan
from sentdist.api.recipes import run as run
from sentdist.api.recipes import sweep as sweep
from sentdist.api.recipes import train as train
from sentdist.api.verdicts import compare as compare
from sentdist.api.verdicts import evaluate as evaluate
from sentdist.api.verdicts import report as report
from sentdist.errors import DataError as DataError
from sentdist.errors import EncoderError as EncoderError
from sentdist.errors import RecipeError as RecipeError
from sentdist.errors import ResourceError as ResourceError
from sentdist.errors import SentdistError as SentdistError
from sentdist.errors import StoreError as StoreError
from sentdist.errors import TrainingDiverged as TrainingDiverged
from sentdist.execution.build_recipe import Outcome as Outcome
from sentdist.plan.recipe import Recipe as Recipe
from sentdist.plan.unroll import Plan as Plan
