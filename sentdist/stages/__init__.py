"""How each kind of stage is built, wherever that is: its fields become arguments of `learning`, `data` and `evaluation`. No Ray.

Where to begin: `local.py` builds stages one after another; `build_in_process.py` says which body builds which kind; `train.py` trains.
`planning/` is what is looked up before anything is built.
"""
