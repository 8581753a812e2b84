"""The kinds of devices, a file each: what a scenario may say of one, and the device that it becomes."""
