"""An adapter in another dialect: the same change of the same base, under other keys.

places   where each module lies, flattened names included
scales   where alpha is kept: in the configuration, beside the factors, or in B
respell  all of it, as a plan
"""
