"""A DCP folder is written: items in files, their metadata, and the rest of the source behind them."""
