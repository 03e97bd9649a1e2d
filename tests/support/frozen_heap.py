"""Imported, it takes what lives in this process out of the garbage collector's sight.

A million objects of libraries are walked through at each full collection otherwise, and in a forked process copied by it.
"""

import gc

gc.collect()
gc.freeze()
