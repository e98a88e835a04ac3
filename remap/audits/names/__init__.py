"""What names look like: adapters, buffers, wrappers, quantisation, ... Facts only, each with its source."""
