"""On which machines a plan is built: in this process, or on a Ray cluster. Nothing else imports Ray or DeepSpeed.

Where to begin: `build_recipe.py` carries a recipe out; `local_sweep.py` builds a plan in this process, `sweep.py` on a cluster, through the
board (`board/`), which has each stage built once. What a stage reserves stands in `demand.py`, what a cluster can carry in `capacity.py`.
"""
