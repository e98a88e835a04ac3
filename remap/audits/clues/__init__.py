"""What a single key tells: the nearest name, what two shapes have to do with each other, whole layers."""
