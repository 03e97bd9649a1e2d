"""Build plans in this process or on a Ray cluster. No other package imports Ray or DeepSpeed.

Start with `backend.py`, which runs a recipe; `local.py` builds plans in this process, `sweep.py` on a cluster through the board
(`board/`), which builds each stage once. `demand.py` knows what a stage reserves, `capacity.py` how much runs at once.
"""
