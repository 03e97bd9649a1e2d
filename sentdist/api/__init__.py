"""The Python API: functions that work in this process, with the names and defaults of the commands.

`sentdist.__all__` lists the public names; heavy libraries are loaded on the first call. An encoder is given as an `Encoder`, a folder, a
packaged name (`minilm-l6`), a hub id or the key of a train artifact. `store=None` means the environment variable SENTDIST_STORE, else
`.sentdist/store`; `data=None` means SENTDIST_DATA, else only generated data. Errors are a `SentdistError` with the parts where, found,
expected and remedy.
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
from sentdist.recipe.recipe import Recipe as Recipe
from sentdist.recipe.unroll import Plan as Plan
from sentdist.run.backend import Outcome as Outcome
