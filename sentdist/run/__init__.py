"""Build plans in this process or on a Ray cluster. No other package imports Ray or DeepSpeed.

Start with `build_recipe.py`, which runs a recipe and builds plans in this process; `sweep.py` builds them on a cluster through the board
(`client.py`, `board.py`), which has each stage built once: by worker groups (`workers.py`, `group.py`, `rank.py`) or in a Ray task
(`build_stage.py`). `resources.py` knows what a stage reserves and how much runs at once.
"""
