"""A torch file is written: a rename in place, everything else anew, or from nothing."""
