"""Measures this machine, and writes a device file that scenarios can name: `netfold calibrate`.

timing    the least time of a call, over repeats
kernels   operators of PyTorch: what a call costs, rates of arithmetic and of memory by size
codecs    encoding and decoding: time for the work that codecs count
check     real steps beside predicted ones
measure   all of it, as a device file
"""
