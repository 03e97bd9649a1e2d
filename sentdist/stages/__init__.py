"""Build each kind of stage with `learning`, `data` and `evaluation`; no Ray.

`local.py` builds stages one after another, `train.py` trains, and `planning/` inspects files and estimates costs before anything is built.
"""
