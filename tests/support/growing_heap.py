"""Imported, it keeps the garbage collector from walking through what is imported next, again and again; `frozen_heap` calls it back."""

import gc

gc.disable()
