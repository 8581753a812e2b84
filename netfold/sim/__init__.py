"""netfold: what happens to a gradient, on this network, under this encoding?"""
