"""Imported, it takes what lives in this process out of the garbage collector's sight, and has it come rarely, as in a worker.

A million objects of libraries are walked through at each full collection otherwise, and in a forked process copied by it.
"""

import gc

from sentdist.machine import collect_rarely

gc.collect()
gc.freeze()
gc.enable()
collect_rarely()
