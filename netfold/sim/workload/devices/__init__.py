"""Devices, which say how long compute takes: no time, fixed times, a roofline, a recording, this machine.

hardware   the table: peaks and what of them is reached, with sources
cost       what a step costs: kernels, counted on the real model
device     the contract: times of passes, of the optimizer's update, of encoding, decoding and copies
roofline   counted work to time;  calibrated   device files of measured processors
host_codec a codec on the other side than the gradient, which pays copies
variation  jitter and stragglers, keyed
kinds/     what a scenario may say, a file for each kind
"""
