"""What a pack says: YAML -> nodes with lines > names and types > meaning > checked values."""
